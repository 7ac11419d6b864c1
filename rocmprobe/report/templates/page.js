(() => {
  const select = (node) => {
    const range = document.createRange()
    range.selectNodeContents(node)
    const selection = getSelection()
    selection.removeAllRanges()
    selection.addRange(range)
  }
  const copy = async (node) => {
    try {
      await navigator.clipboard.writeText(node.textContent)
      return true
    } catch {
      // A page from a file may not have the clipboard interface; the old way needs a selection.
      select(node)
      return document.execCommand('copy')
    }
  }
  for (const button of document.querySelectorAll('.rp button.copy')) {
    button.hidden = false
    button.addEventListener('click', async () => {
      const done = await copy(button.closest('.block').querySelector('code'))
      button.textContent = done ? 'Copied' : 'Press Ctrl+C'
      setTimeout(() => { button.textContent = 'Copy' }, 2000)
    })
  }
  const save = document.getElementById('save-json')
  save.hidden = false
  save.addEventListener('click', () => {
    const data = document.getElementById('rocmprobe-results').textContent
    const link = document.createElement('a')
    link.href = URL.createObjectURL(new Blob([data], { type: 'application/json' }))
    link.download = 'results.json'
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  })
  const unfold = (node) => {
    for (let fold = node && node.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true
  }
  const show = () => {
    const target = /^#o\d+$/.test(location.hash) && document.querySelector(location.hash)
    if (!target) return
    unfold(target)
    target.closest('details').scrollIntoView({ block: 'center' })
    target.focus({ preventScroll: true })
  }
  addEventListener('hashchange', show)
  document.addEventListener('click', (event) => {
    const link = event.target.closest && event.target.closest('.rp a[href^="#o"]')
    if (link && link.hash === location.hash) show()
  })
  addEventListener('beforeprint', () => {
    document.querySelectorAll('.rp details:not(.entry)').forEach((fold) => { fold.open = true })
  })
  show()
})()
