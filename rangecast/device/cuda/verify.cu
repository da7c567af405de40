// Verification on the device: every event with every box in float64, by counts and hashes.

__device__ __forceinline__ u64 mixed(u64 x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// A thread per box, 32 events per blockIdx.y. Subscriptions have one box each; `alive` says which
// boxes count.
//
//   sums   [events][3] count, and the two halves of the sum of the hashes of rows
extern "C" __global__ void __launch_bounds__(256) match_plainly(const u32* __restrict__ first_term,
        const u16* __restrict__ term_axis, const double* __restrict__ term_lo,
        const double* __restrict__ term_hi, const int* __restrict__ owner,
        const u8* __restrict__ alive, int boxes, const double* __restrict__ points, int events,
        int dimensions, u32* __restrict__ sums) {
    SHARED_MEMORY
    double* values = (double*)shared_memory;  // [dimensions][32]
    __shared__ u32 own[32][3];
    const int first = blockIdx.y * 32;
    for (int i = threadIdx.x; i < 32 * dimensions; i += blockDim.x) {
        const int e = i / dimensions, a = i % dimensions;
        values[a * 32 + e] = first + e < events ? points[(i64)(first + e) * dimensions + a] : 0;
    }
    if (threadIdx.x < 96) own[threadIdx.x / 3][threadIdx.x % 3] = 0;
    __syncthreads();
    const u32 whole = events - first >= 32 ? FULL : (1u << (events - first)) - 1;
    for (i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x; b < boxes;
         b += (i64)gridDim.x * blockDim.x) {
        u32 mask = alive[b] ? whole : 0;
        for (u32 t = first_term[b]; t < first_term[b + 1] && mask; ++t) {
            const double lo = term_lo[t], hi = term_hi[t];
            const double* value = values + term_axis[t] * 32;
            u32 in = 0;
            for (int e = 0; e < 32; ++e) in |= (u32)(lo <= value[e] && value[e] <= hi) << e;
            mask &= in;
        }
        const u64 hash = mixed(owner[b]);
        while (mask) {
            const int e = __ffs(mask) - 1;
            mask &= mask - 1;
            atomicAdd(&own[e][0], 1u);
            atomicAdd(&own[e][1], (u32)hash);
            atomicAdd(&own[e][2], (u32)(hash >> 32));
        }
    }
    __syncthreads();
    if (threadIdx.x < 96 && first + (int)threadIdx.x / 3 < events)
        atomicAdd(&sums[first * 3 + threadIdx.x], own[threadIdx.x / 3][threadIdx.x % 3]);
}

// A warp per event: the same of an answer; and how many rows don't ascend.
extern "C" __global__ void hash_answer(const i64* __restrict__ offsets, const int* __restrict__ ids,
        int events, u32* __restrict__ sums, int* __restrict__ disordered) {
    const int e = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (e >= events) return;
    u32 low = 0, high = 0;
    for (i64 i = offsets[e] + lane; i < offsets[e + 1]; i += 32) {
        const u64 hash = mixed(ids[i]);
        low += (u32)hash;
        high += (u32)(hash >> 32);
        if (i > offsets[e] && ids[i] <= ids[i - 1]) atomicAdd(disordered, 1);
    }
    for (int o = 16; o; o >>= 1) {
        low += __shfl_xor_sync(FULL, low, o);
        high += __shfl_xor_sync(FULL, high, o);
    }
    if (lane == 0) {
        sums[e * 3] = (u32)(offsets[e + 1] - offsets[e]);
        sums[e * 3 + 1] = low;
        sums[e * 3 + 2] = high;
    }
}
