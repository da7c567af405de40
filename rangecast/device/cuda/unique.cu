// Each subscription once: of several boxes that contain an event, one is reported.

// A warp per event: how many different rows its list has, which ascends.
//
//   limit   ids that were written at most: with more there are none, and the answer is worthless
extern "C" __global__ void count_unique(const i64* __restrict__ offsets, const int* __restrict__ ids,
        int events, i64 limit, i64* __restrict__ total) {
    const int e = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (e >= events) return;
    if (e == 0 && lane == 0) total[0] = 0;
    const i64 end = offsets[events] > limit ? 0 : offsets[e + 1];
    u32 count = 0;
    for (i64 base = offsets[e]; base < end; base += 32) {
        const i64 i = base + lane;
        const bool is_new = i < end && (i == offsets[e] || ids[i] != ids[i - 1]);
        count += __popc(__ballot_sync(FULL, is_new));
    }
    if (lane == 0) total[e + 1] = count;
}

// A warp per event: write each of its rows once.
extern "C" __global__ void copy_unique(const i64* __restrict__ offsets, const int* __restrict__ ids,
        int events, i64 limit, const i64* __restrict__ new_offsets, int* __restrict__ out) {
    const int e = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (e >= events || offsets[events] > limit) return;
    i64 filled = new_offsets[e];
    for (i64 base = offsets[e]; base < offsets[e + 1]; base += 32) {
        const i64 i = base + lane;
        const bool is_new = i < offsets[e + 1] && (i == offsets[e] || ids[i] != ids[i - 1]);
        const u32 some = __ballot_sync(FULL, is_new);
        if (is_new) out[filled + __popc(some & ((1u << lane) - 1))] = ids[i];
        filled += __popc(some);
    }
}
