(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)]
  const byId = (id) => document.getElementById(id)

  // Copying and saving.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text)
      return true
    } catch {
      // A page from a file may not have the clipboard interface; the old way needs a selection.
      const area = document.createElement('textarea')
      area.value = text
      area.setAttribute('aria-hidden', 'true')
      document.body.append(area)
      area.select()
      const done = document.execCommand('copy')
      area.remove()
      return done
    }
  }
  const inflated = async (id) => {
    const packed = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0))
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))
    return new Response(stream).text()
  }
  const canInflate = 'DecompressionStream' in window
  for (const button of all('.rp button.copy')) {
    button.hidden = false
    button.addEventListener('click', async () => {
      const done = await copy(button.closest('.block').querySelector('code').textContent)
      button.textContent = done ? 'Copied' : 'Could not copy'
      setTimeout(() => { button.textContent = 'Copy' }, 2000)
    })
  }
  const issues = byId('issues')
  if (issues && canInflate) {
    const texts = inflated('rocmprobe-issues').then(JSON.parse)
    issues.hidden = false
    for (const button of all('button', issues)) {
      button.addEventListener('click', async () => {
        const done = await copy((await texts)[button.dataset.issue])
        issues.querySelector('[role=status]').textContent = done ? `Copied: ${button.dataset.issue}` : 'Could not copy'
      })
    }
  }
  const save = byId('save-json')
  save.hidden = !canInflate
  save.addEventListener('click', async () => {
    const link = document.createElement('a')
    link.href = URL.createObjectURL(new Blob([await inflated('rocmprobe-results')], { type: 'application/json' }))
    link.download = 'results.json'
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  })
  byId('print').hidden = false
  byId('print').addEventListener('click', () => print())

  // Filtering: the address holds "#filter=WORDS&oN", either part alone, or neither.
  const outcomes = all('.rp .entry:not(.log), .rp .outcomes tbody tr').map((node) => {
    const fold = node.closest('.bundle')
    const heading = fold.firstElementChild.textContent
    return {
      node,
      anchor: node.id || node.querySelector('.entry-body').id,
      state: (node.querySelector('.state') || node.firstElementChild).textContent.trim().split(/\s+/).pop(),
      arch: (node.closest('[data-arch]') || node).dataset.arch || '',
      get text() { return `${heading} ${node.textContent}`.toLowerCase() },
    }
  })
  const holds = (outcome, word) => {
    if (word.startsWith('!')) return word.length === 1 || !holds(outcome, word.slice(1))
    if (word.startsWith('s:')) return outcome.state.startsWith(word.slice(2))
    if (word.startsWith('arch:')) return outcome.arch.includes(word.slice(5))
    return outcome.text.includes(word)
  }
  const bar = byId('filter')
  const field = byId('filter-text')
  let shown = new Set()
  const rows = all('#results-table tbody tr').map((node, place) => ({
    node,
    result: node.cells[0].textContent,
    evidence: node.querySelector('a').hash,
    // What each column sorts by; the rows come ordered by result.
    keys: [place, node.cells[1].textContent, node.querySelector('summary').textContent, Number(node.cells[3].dataset.seconds)],
  }))
  const boxes = all('#outcome-tools input')
  const filterRows = () => {
    const results = boxes.filter((box) => box.checked).map((box) => box.value)
    for (const row of rows) {
      row.node.hidden = !results.includes(row.result) || (field.value.trim() !== '' && !shown.has(row.evidence))
    }
    byId('no-rows').textContent = rows.every((row) => row.node.hidden) ? 'No results found. Check the filters.' : ''
  }
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
    shown = new Set()
    for (const outcome of outcomes) {
      const fits = words.every((word) => holds(outcome, word))
      outcome.node.hidden = !fits
      if (fits) shown.add(`#${outcome.anchor}`)
    }
    filterRows()
    // The table of all outcomes is part of what is searched.
    if (words.length) byId('h-outcomes').closest('details').open = true
    for (const fold of [...all('.rp .bundle'), ...all('.rp .group')]) {
      const members = all('.entry:not(.log), .outcomes tbody tr', fold)
      fold.hidden = members.length > 0 && members.every((node) => node.hidden)
      if (words.length && members.length && !fold.hidden) fold.open = true
    }
    for (const cell of all('.rp :is(.matrix, .checks) td a')) cell.classList.toggle('off', !shown.has(cell.hash))
    for (const rows of all('.rp :is(.matrix, .checks) tbody')) rows.hidden = words.length > 0 && !rows.querySelector('a:not(.off)')
    bar.querySelector('output').value = words.length ? `${shown.size} of ${outcomes.length}` : ''
  }
  const decoded = (part) => {
    try {
      return decodeURIComponent(part)
    } catch {
      // Written by hand: "%" alone is no escape.
      return part
    }
  }
  const address = () => {
    const parts = location.hash.slice(1).split('&')
    const kept = parts.find((part) => part.startsWith('filter='))
    return { target: parts.find((part) => /^[ol]\d+$/.test(part)), words: kept && decoded(kept.slice(7)) }
  }
  const remember = (target) => {
    const words = field.value.trim() && `filter=${encodeURIComponent(field.value.trim())}`
    const hash = [words, target].filter(Boolean).join('&')
    history.replaceState(null, '', hash ? `#${hash}` : location.pathname + location.search)
  }
  const clear = () => {
    field.value = ''
    filter()
  }
  const show = (id) => {
    const target = byId(id)
    if (!target) return
    if (target.closest('[hidden]')) clear()
    for (let fold = target.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true
    all('.rp .shown').forEach((node) => node.classList.remove('shown'))
    target.classList.add('shown')
    target.tabIndex = -1
    const place = target.closest('tr, details')
    place.scrollIntoView({ block: 'center' })
    target.focus({ preventScroll: true })
  }
  const arrive = () => {
    const { target, words } = address()
    if (words !== undefined && words !== field.value) {
      field.value = words
      filter()
    }
    if (target) {
      show(target)
      remember(target)
    }
  }
  if (bar && outcomes.length) {
    bar.hidden = false
    bar.addEventListener('submit', (event) => event.preventDefault())
    field.addEventListener('input', () => {
      filter()
      remember()
    })
  }

  // The table of all outcomes.
  const headers = all('#results-table th')
  headers.forEach((header, column) => {
    const button = document.createElement('button')
    button.type = 'button'
    button.append(...header.childNodes)
    header.append(button)
    button.addEventListener('click', () => {
      const sign = header.getAttribute('aria-sort') === 'ascending' ? -1 : 1
      headers.forEach((each) => each.removeAttribute('aria-sort'))
      header.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending')
      const order = (one, other) => (one.keys[column] > other.keys[column]) - (one.keys[column] < other.keys[column])
      rows.sort((one, other) => sign * order(one, other))
      for (const row of rows) row.node.parentNode.append(row.node)
    })
  })
  for (const [id, open] of [['show-details', true], ['hide-details', false]]) {
    byId(id).addEventListener('click', () => all('#results-table details').forEach((fold) => { fold.open = open }))
  }
  boxes.forEach((box) => box.addEventListener('change', filterRows))
  byId('outcome-tools').hidden = !rows.length

  addEventListener('hashchange', arrive)
  document.addEventListener('click', (event) => {
    const link = event.target.closest && event.target.closest('a[href^="#"]')
    // The same address twice is no change of it.
    if (link && address().target === link.hash.slice(1)) show(link.hash.slice(1))
  })

  // A table that is wider than its box says so. Opening a fold changes the box.
  const widths = new ResizeObserver((boxes) => {
    for (const { target } of boxes) target.classList.toggle('wide', target.scrollWidth > target.clientWidth + 1)
  })
  all('.rp .scroll').forEach((box) => widths.observe(box))

  // On paper everything is open.
  let folded = []
  addEventListener('beforeprint', () => {
    folded = all('.rp details:not([open])')
    folded.forEach((fold) => { fold.open = true })
  })
  addEventListener('afterprint', () => folded.forEach((fold) => { fold.open = false }))
  if (bar) arrive()
})()
