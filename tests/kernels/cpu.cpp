// Runs a kernel's source on the CPU: every thread of a block is a fibre, and a barrier changes fibres. The order of
// the threads is shuffled anew after every barrier, so that a kernel with a barrier too few computes something else.
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
int cpu_thread, cpu_block[3];
}

namespace {
constexpr size_t STACK = 64 * 1024;
ucontext_t scheduler;
std::vector<ucontext_t> fibres;
std::vector<char> ended;
std::vector<char> stacks;
void (*entry)(const void*);
const void* argument_bytes;
uint64_t state;

unsigned drawn(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % below);
}

void begin() {
    entry(argument_bytes);
    ended[cpu_thread] = 1;
}
}  // namespace

extern "C" void cpu_barrier() { swapcontext(&fibres[cpu_thread], &scheduler); }

// Returns 0, or 1 where some threads of a block reached a barrier that others never reach.
extern "C" int cpu_launch(
    void (*kernel)(const void*), const int* grid, int threads, const void* arguments, uint64_t seed) {
    entry = kernel;
    argument_bytes = arguments;
    state = seed;
    fibres.resize(threads);
    ended.resize(threads);
    stacks.resize(threads * STACK);
    std::vector<int> order(threads);
    for (int i = 0; i < threads; i++) order[i] = i;
    for (int z = 0; z < grid[2]; z++)
        for (int y = 0; y < grid[1]; y++)
            for (int x = 0; x < grid[0]; x++) {
                cpu_block[0] = x, cpu_block[1] = y, cpu_block[2] = z;
                for (int i = 0; i < threads; i++) {
                    ended[i] = 0;
                    getcontext(&fibres[i]);
                    fibres[i].uc_stack = {stacks.data() + i * STACK, 0, STACK};
                    fibres[i].uc_link = &scheduler;
                    makecontext(&fibres[i], begin, 0);
                }
                for (bool running = true; running;) {
                    for (int i = threads - 1; i > 0; i--) std::swap(order[i], order[drawn(i + 1)]);
                    int finished = 0;
                    for (int thread : order) {
                        cpu_thread = thread;
                        swapcontext(&scheduler, &fibres[thread]);
                        finished += ended[thread];
                    }
                    if (finished && finished < threads) return 1;
                    running = !finished;
                }
            }
    return 0;
}
