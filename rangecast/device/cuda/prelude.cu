// Types, constants and packing that all kernels share.
//
// A box is filed under at most LANES of the attributes that it mentions. For each of these lanes:
//
//   rows    the two rows of the tile's table between which its events lie (see tile.cu):
//           lower row, 10 bits | lower is rough | upper is rough | ... | upper row, 10 bits
//   finer   (-lower code, upper code), 16 bits each (see codes.cu)
//   axes    the attribute, one byte; the top bit of the first lane's says that the box mentions
//           more than its lanes: whatever the codes say, it is compared term by term
//
// Compile-time constants: LANES (2, 4 or 8), CHUNK boxes that are searched between two barriers,
// CODES_SHARED: whether the fine codes of a tile lie in shared memory.

#ifndef EMULATED
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;
#define SHARED_MEMORY extern __shared__ uint4 shared_memory[];
#endif
typedef long long i64;

#define EVENTS 1024                  /* of a tile: one per thread of a block */
#define FULL 0xffffffffu
#define RING 2048                    /* boxes that wait for their chunk */
#define AXIS_WORDS ((LANES + 3) / 4) /* words of the attributes of a box */
#define DEAD_ROW 0x3ffu              /* a lower row above every event's */
#define ROUGH_LOW (1u << 10)
#define ROUGH_HIGH (1u << 11)
#define ROW_LOW(lane) ((lane) & 0x3ff)
#define ROW_HIGH(lane) ((lane) >> 22)
#define AXIS(words, lane) (((words)[(lane) / 4] >> (8 * ((lane) & 3))) & 127)
#define HAS_MORE(words) ((words)[0] & 128)

#ifndef EMULATED
__device__ __forceinline__ int top_bit(u32 x) {
    int r;
    asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}
// Hold a value in a register rather than compute it again.
#define KEEP(x) asm volatile("" : "+r"(x))
__device__ __forceinline__ u32 shared_address(const void* p) {
    return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ uint4 shared_quad(u32 at) {
    uint4 v;
    asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
// Copy to shared memory while the warp goes on; `fetched_all` waits for it.
template <int BYTES> __device__ __forceinline__ void fetch(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :: "r"(shared_address(to)), "l"(from), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void fetched_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ __forceinline__ double infinity() {
    return __longlong_as_double(0x7ff0000000000000LL);
}
__device__ __forceinline__ double largest() { return __longlong_as_double(0x7fefffffffffffffLL); }
#endif

// The boxes of a set, as kernels read them.
struct Boxes {
    const u32* rows;         // [boxes][LANES]
    const u32* finer;        // [boxes][LANES]
    const u32* axes;         // [boxes][AXIS_WORDS]
    const u32* first_term;   // [boxes + 1]
    const u16* axis;         // [terms] the attribute of the space
    const double* lo;        // [terms]
    const double* hi;        // [terms]
    const int* owner;        // [boxes] the subscription's row, ascending
};
#define BOXES_PARAMETERS const u32* __restrict__ box_rows, const u32* __restrict__ box_finer, \
    const u32* __restrict__ box_axes, const u32* __restrict__ first_term, \
    const u16* __restrict__ term_axis, const double* __restrict__ term_lo, \
    const double* __restrict__ term_hi, const int* __restrict__ owner
#define BOXES_GIVEN Boxes{box_rows, box_finer, box_axes, first_term, term_axis, term_lo, term_hi, owner}

// Does a box contain an event? All its terms, in float64: the last word on every doubt.
__device__ __forceinline__ bool contains(const Boxes& boxes, u32 box, const double* event) {
    const u32 end = boxes.first_term[box + 1];
    for (u32 t = boxes.first_term[box]; t < end; ++t) {
        const double value = event[boxes.axis[t]];
        if (!(boxes.lo[t] <= value && value <= boxes.hi[t])) return false;
    }
    return true;
}

__device__ __forceinline__ void load_lanes(u32 (&lanes)[LANES], const u32* from) {
#if LANES % 4 == 0
#pragma unroll
    for (int i = 0; i < LANES / 4; ++i) {
        const uint4 v = ((const uint4*)from)[i];
        lanes[4 * i] = v.x; lanes[4 * i + 1] = v.y; lanes[4 * i + 2] = v.z; lanes[4 * i + 3] = v.w;
    }
#else
    const uint2 v = *(const uint2*)from;
    lanes[0] = v.x; lanes[1] = v.y;
#endif
}

// The sum of the values of the lanes up to and including this one.
template <class T> __device__ __forceinline__ T sum_so_far(T x, int lane) {
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const T y = __shfl_up_sync(FULL, x, o);
        if (lane >= o) x += y;
    }
    return x;
}
