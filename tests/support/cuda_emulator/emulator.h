// The names of CUDA that the kernels use, on a CPU: each thread of a block is a fiber. Warps meet at
// warp functions, blocks at barriers. Shared memory begins as garbage, and what lies behind it must
// stay as it was. Fibers run in another order in each block, to show what depends on it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>
#define EMULATED 1
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define SHARED_MEMORY
using std::max;
using std::min;
struct uint4 { u32 x, y, z, w; };
struct uint2 { u32 x, y; };
struct int4 { int x, y, z, w; };
static inline uint4 make_uint4(u32 a, u32 b, u32 c, u32 d) { return {a, b, c, d}; }
static inline int4 make_int4(int a, int b, int c, int d) { return {a, b, c, d}; }
static inline uint2 make_uint2(u32 a, u32 b) { return {a, b}; }

struct Index { unsigned x, y; };
struct Warp { int arrived = 0, meeting = 0, alive = 32; u64 slots[2][32]; };
struct Fiber { void* stack_top; char* stack; Index index; int lane; Warp* warp; bool done; int barrier; };
static const int STACK = 64 << 10, SHARED = 300 << 10;
static uint4 shared_memory[SHARED / 16];
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Fiber* current;
static void* main_stack;
static Index blockIdx, blockDim, gridDim;
static int arrived_at_barrier, barrier, alive_in_block, stride;
static std::function<void()> body;
#define threadIdx (current->index)

extern "C" void switch_fiber(void** from, void* to);
asm(R"(
.globl switch_fiber
switch_fiber:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
static bool is_runnable(const Fiber& f) { return !f.done && f.barrier != barrier; }
// Go on with the next lane of the warp that can, or leave the warp.
static void pause_fiber() {
    Fiber* f = current;
    Fiber* first = f - f->lane;
    for (int i = 1; i < 32; ++i) {
        Fiber* next = first + ((f->lane + stride * i) & 31);
        if (!is_runnable(*next)) continue;
        current = next;
        switch_fiber(&f->stack_top, next->stack_top);
        return;
    }
    switch_fiber(&f->stack_top, main_stack);
}
extern "C" void fiber_main() {
    body();
    current->done = true;
    Warp* w = current->warp;
    if (--w->alive && w->arrived == w->alive) { w->arrived = 0; w->meeting++; }
    if (--alive_in_block && arrived_at_barrier == alive_in_block) { arrived_at_barrier = 0; barrier++; }
    pause_fiber();
    abort();
}
static void meet_warp() {
    Warp* w = current->warp;
    const int meeting = w->meeting;
    if (++w->arrived == w->alive) { w->arrived = 0; w->meeting++; }
    else while (w->meeting == meeting) pause_fiber();
}
static inline void __syncwarp() { meet_warp(); }
static inline void __syncthreads() {
    const int own = barrier;
    if (++arrived_at_barrier == alive_in_block) { arrived_at_barrier = 0; barrier++; return; }
    current->barrier = own;  // not run before the others are there
    while (barrier == own) pause_fiber();
}
// Values of a warp's lanes: two sets, so that a lane may be one meeting ahead of another.
template <class T> static const u64* put(T v) {
    u64* slots = current->warp->slots[current->warp->meeting & 1];
    u64 x = 0;
    memcpy(&x, &v, sizeof v);
    slots[current->lane] = x;
    meet_warp();
    return slots;
}
template <class T> static T as(u64 x) { T v; memcpy(&v, &x, sizeof v); return v; }
static u32 __ballot_sync(u32, bool p) {
    const u64* slots = put<u32>(p);
    u32 mask = 0;
    for (int i = 0; i < 32; ++i) mask |= (u32)(slots[i] & 1) << i;
    return mask;
}
static bool __any_sync(u32 all, bool p) { return __ballot_sync(all, p) != 0; }
template <class T> static T __shfl_sync(u32, T v, int l) { return as<T>(put(v)[l & 31]); }
template <class T> static T __shfl_up_sync(u32, T v, int o) {
    const u64* slots = put(v);
    return current->lane >= o ? as<T>(slots[current->lane - o]) : v;
}
template <class T> static T __shfl_xor_sync(u32, T v, int o) { return as<T>(put(v)[current->lane ^ o]); }
static u32 __reduce_min_sync(u32, u32 v) {
    const u64* slots = put(v);
    return (u32)*std::min_element(slots, slots + 32);
}
static u32 __reduce_max_sync(u32, u32 v) {
    const u64* slots = put(v);
    return (u32)*std::max_element(slots, slots + 32);
}
static int __popc(u32 x) { return __builtin_popcount(x); }
static int __ffs(u32 x) { return __builtin_ffs(x); }
template <class T, class U> static T atomicAdd(T* p, U v) { T o = *p; *p = o + v; return o; }
template <class T, class U> static T atomicAnd(T* p, U v) { T o = *p; *p = o & v; return o; }
template <class T, class U> static T atomicMin(T* p, U v) { T o = *p; *p = min<T>(o, v); return o; }
template <class T, class U> static T atomicMax(T* p, U v) { T o = *p; *p = max<T>(o, v); return o; }
static inline int top_bit(u32 x) { return 31 - __builtin_clz(x); }
#define KEEP(x)
static inline u32 shared_address(const void* p) {
    return (u32)((const char*)p - (const char*)shared_memory);
}
static inline uint4 shared_quad(u32 at) { return *(const uint4*)((const char*)shared_memory + at); }
template <int BYTES> static inline void fetch(void* to, const void* from) { memcpy(to, from, BYTES); }
static inline void fetched_all() {}
static inline double infinity() { return INFINITY; }
static inline double largest() { return 1.7976931348623157e308; }
static inline u32 __viaddmin_s16x2(u32 a, u32 b, u32 c) {
    const short low = min<short>((short)(a + b), (short)c);
    const short high = min<short>((short)((a >> 16) + (b >> 16)), (short)(c >> 16));
    return (u16)low | (u32)(u16)high << 16;
}

static int run(const int* grid, int threads, int shared, std::function<void()> kernel) {
    body = kernel;
    gridDim = {(unsigned)grid[0], (unsigned)grid[1]};
    blockDim = {(unsigned)threads, 1};
    while ((int)fibers.size() < threads) {
        fibers.emplace_back();
        fibers.back().stack = (char*)aligned_alloc(64, STACK);
    }
    for (int y = 0; y < grid[1]; ++y) for (int x = 0; x < grid[0]; ++x) {
        blockIdx = {(unsigned)x, (unsigned)y};
        memset(shared_memory, 0xa5, SHARED);
        warps.assign((threads + 31) / 32, Warp());
        arrived_at_barrier = barrier = 0;
        alive_in_block = threads;
        for (int i = 0; i < threads; ++i) {
            Fiber& f = fibers[i];
            f.index = {(unsigned)i, 0}; f.lane = i & 31; f.warp = &warps[i / 32]; f.done = false; f.barrier = -1;
            void** top = (void**)(f.stack + STACK);
            *--top = 0; *--top = (void*)fiber_main;
            for (int k = 0; k < 6; ++k) *--top = 0;
            f.stack_top = top;
        }
        // A warp runs until all of its lanes wait at a barrier or are done, then the next one.
        stride = 2 * (x % 16) + 1;
        while (alive_in_block) for (int w = 0; w < (int)warps.size(); ++w) {
            const int warp = (x & 1) ? (int)warps.size() - 1 - w : w;
            for (int lane = 0; lane < 32; ++lane) {
                Fiber& f = fibers[warp * 32 + (x & 2 ? 31 - lane : lane)];
                while (is_runnable(f)) {
                    current = &f;
                    switch_fiber(&main_stack, f.stack_top);
                }
            }
        }
        const u8* behind = (const u8*)shared_memory;
        for (int i = (shared + 15) & ~15; i < SHARED; ++i) if (behind[i] != 0xa5) return 1;
    }
    return 0;
}
