// From lists to one answer: offsets of events in their own order, and ids, ascending.

// A warp per place of the order: where each part's matches begin among those of its event; how many
// the event has; the most that one list has.
//
//   total    [events + 1], of which the first stays 0: summed up it becomes the offsets
//   work     [3] of which the second is the most that a list has, the third that an event has
//   starts   [splits][padded]
extern "C" __global__ void add_up(const u32* __restrict__ counts, i64 padded, int splits,
        const int* __restrict__ order, int events, i64* __restrict__ total, int* __restrict__ starts,
        u64* __restrict__ work) {
    const int p = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (p >= events) return;
    u32 sum = 0, most = 0;
    for (int base = 0; base < splits; base += 32) {
        const int s = base + lane;
        const u32 count = s < splits ? counts[s * padded + p] : 0, so_far = sum_so_far(count, lane);
        most = max(most, count);
        if (s < splits) starts[s * padded + p] = sum + so_far - count;
        sum += __shfl_sync(FULL, so_far, 31);
    }
    most = __reduce_max_sync(FULL, most);
    if (lane == 0) {
        total[order[p] + 1] = sum;
        if (most > (u32)work[1]) atomicMax((u32*)(work + 1), most);
        if (sum > (u32)work[2]) atomicMax((u32*)(work + 2), sum);
    }
}

#define SUMMED 4096  /* numbers that a block sums up */

// A block sums up SUMMED numbers: each becomes the sum of those up to it. Returns the sum of all.
// `exclusive`: of those before it.
template <class T> __device__ __forceinline__ T sum_up(T* values, int count, bool exclusive,
        T (&sums)[2][32]) {
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    T before = 0;
    for (int base = 0, turn = 0; base < count; base += 1024, ++turn) {
        const T value = base + tid < count ? values[base + tid] : 0;
        const T so_far = sum_so_far(value, lane);
        if (lane == 31) sums[turn & 1][warp] = so_far;
        __syncthreads();
        const T of_warp = sums[turn & 1][lane], of_warps = sum_so_far(of_warp, lane);
        const T mine = before + __shfl_sync(FULL, of_warps - of_warp, warp) + so_far;
        if (base + tid < count) values[base + tid] = exclusive ? mine - value : mine;
        before += __shfl_sync(FULL, of_warps, 31);
    }
    return before;
}

extern "C" __global__ void __launch_bounds__(1024) sum_histogram(u32* histogram, int count) {
    __shared__ u32 sums[2][32];
    sum_up(histogram, count, true, sums);
}

// Offsets in three steps: each block sums up its own; one block sums up those of blocks; then each
// adds what comes before it. The last step writes to the host's memory: the header (boxes that met
// tiles, the longest list, the most matches of an event, all matches), and the offsets if `copy` is
// given. If there is a single block, the first step is the last one.
__device__ __forceinline__ void write_header(u64* header, const u64* __restrict__ work, u64 all) {
    header[0] = work[0]; header[1] = work[1]; header[2] = work[2]; header[3] = all;
}

extern "C" __global__ void __launch_bounds__(1024) sum_blocks(i64* offsets, int count, u64* of_blocks,
        const u64* __restrict__ work, u64* header, i64* copy) {
    __shared__ u64 sums[2][32];
    const int first = blockIdx.x * SUMMED, own = min(SUMMED, count - first);
    const u64 all = sum_up((u64*)offsets + first, own, false, sums);
    if (gridDim.x == 1) {
        for (int i = threadIdx.x; copy && i < count; i += 1024) copy[i] = offsets[i];
        if (threadIdx.x == 0) write_header(header, work, all);
    } else if (threadIdx.x == 0) {
        of_blocks[blockIdx.x] = all;
    }
}

extern "C" __global__ void __launch_bounds__(1024) scan_block_sums(u64* of_blocks, int count) {
    __shared__ u64 sums[2][32];
    sum_up(of_blocks, count, true, sums);
}

extern "C" __global__ void add_blocks(i64* offsets, int count, const u64* __restrict__ of_blocks,
        const u64* __restrict__ work, u64* header, i64* copy) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const i64 offset = offsets[i] + (i64)of_blocks[i / SUMMED];
    offsets[i] = offset;
    if (copy) copy[i] = offset;
    if (i == count - 1) write_header(header, work, offset);
}

// A thread per part and place: where its matches go, now that all are counted.
extern "C" __global__ void find_places(const int* __restrict__ starts, i64 padded, int splits,
        const int* __restrict__ order, int events, const i64* __restrict__ offsets,
        i64* __restrict__ places) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int split = (int)(i / events), p = (int)(i % events);
    if (split >= splits) return;
    places[split * padded + p] = offsets[order[p]] + starts[split * padded + p];
}

#define EXCHANGE(a, b) { const int low_ = min(a, b); b = max(a, b); a = low_; }

// Each lane has four numbers in order: of its own and another lane's, keep the lower or upper half.
__device__ __forceinline__ void merge_split(int (&v)[4], int other, int lane) {
    int y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = __shfl_sync(FULL, v[i], other);
    if (other != lane) {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = other > lane ? min(v[i], y[3 - i]) : max(v[i], y[3 - i]);
        EXCHANGE(v[0], v[2]) EXCHANGE(v[1], v[3]) EXCHANGE(v[0], v[1]) EXCHANGE(v[2], v[3])
    }
}

// The lists that a search left, and where their ids belong.
struct Sorting {
    const int* lists;
    int room;
    const i64* places;
    const u32* counts;
    const int* starts;
    i64 padded;
    const int* order;
    const i64* offsets;
    const int* owner;
    int* ids;
};

// A warp puts the rows of a list's boxes in order, and where they belong. What is nearly in order goes
// through a window of 128, four numbers per lane, of which the last 32 stay; again until all are in
// order. Where the lists lie in `ids` already, it works in place.
__device__ __forceinline__ void sort_list(const Sorting& given, int split, int p, int* stage) {
    const int lane = threadIdx.x & 31, last_of_all = 0x7fffffff;
    const i64 at = split * given.padded + p;
    const int count = given.counts[at];
    const i64* places = given.places;
    if (!count || (!places && count > given.room)) return;  // with more, the caller searches again
    const int* from = places ? given.lists + places[at] : given.lists + at * given.room;
    int* to = given.ids + given.offsets[given.order[p]] + given.starts[at];
    const int odd = (lane & 1) ? min(lane + 1, 31) : max(lane - 1, 0);
    bool is_first = true, again;
    do {
        again = false;
        int v[4], last = -1, in = 0, done = 0;
        for (;;) {
            // What comes next: 128 at first, then 96 after those that stay.
            const int skip = in ? 8 : 0, i = in + (lane - skip) * 4;
            if (lane >= skip) {
                if (is_first && !places) {  // 16 bytes at a time
                    const int4 x = i < count ? *(const int4*)(from + i) : make_int4(0, 0, 0, 0);
                    v[0] = x.x; v[1] = x.y; v[2] = x.z; v[3] = x.w;
                } else {
#pragma unroll
                    for (int k = 0; k < 4; ++k) v[k] = i + k < count ? from[i + k] : 0;
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if (i + k >= count) v[k] = last_of_all;
                    else if (is_first && given.owner) v[k] = given.owner[v[k]];
                }
                EXCHANGE(v[0], v[1]) EXCHANGE(v[2], v[3]) EXCHANGE(v[0], v[2])
                EXCHANGE(v[1], v[3]) EXCHANGE(v[1], v[2])
            }
            in += 128 - 4 * skip;
            while (__any_sync(FULL, __shfl_up_sync(FULL, v[3], 1) > v[0] && lane)) {
                merge_split(v, lane ^ 1, lane);
                merge_split(v, odd, lane);
            }
            again = again | (__shfl_sync(FULL, v[0], 0) < last);
            last = __shfl_sync(FULL, v[3], 23);
            const int give = in < count ? 96 : count - done;
            ((int4*)stage)[lane] = make_int4(v[0], v[1], v[2], v[3]);
            __syncwarp();
            for (int k = lane; k < give; k += 32) to[done + k] = stage[k];
            done += give;
            if (in >= count) break;
            const int4 x = ((const int4*)stage)[(lane + 24) & 31];
            v[0] = x.x; v[1] = x.y; v[2] = x.z; v[3] = x.w;
            __syncwarp();
        }
        __syncwarp();
        from = to;
        is_first = false;
    } while (again);
}

// A warp per list.
//
//   limit   ids that there is room for: with more, nothing is written
extern "C" __global__ void __launch_bounds__(256) sort_lists(const int* lists, int room,
        const i64* __restrict__ places, const u32* __restrict__ counts,
        const int* __restrict__ starts, i64 padded, int splits, const int* __restrict__ order,
        int events, const i64* __restrict__ offsets, const int* __restrict__ owner, int* ids,
        i64 limit) {
    __shared__ int4 stages[8][32];
    const i64 w = ((i64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    const int split = (int)(w / events), p = (int)(w % events);
    if (split >= splits || offsets[events] > limit) return;
    const Sorting given = {lists, room, places, counts, starts, padded, order, offsets, owner, ids};
    sort_list(given, split, p, (int*)stages[threadIdx.x >> 5]);
}

// A block per event at a time: sort its lists, then copy its ids to the host's memory, 16 bytes at a
// time, while other events are sorted. The lists are short: written at once, they would be parts of
// lines.
extern "C" __global__ void __launch_bounds__(1024) sort_and_deliver(const int* lists, int room,
        const u32* __restrict__ counts, const int* __restrict__ starts, i64 padded, int splits,
        const int* __restrict__ order, int events, const i64* __restrict__ offsets,
        const int* __restrict__ owner, int* ids, i64 limit, int* out) {
    __shared__ int4 stages[32][32];
    if (offsets[events] > limit) return;
    const int tid = threadIdx.x, warp = tid >> 5;
    const Sorting given = {lists, room, 0, counts, starts, padded, order, offsets, owner, ids};
    for (int p = blockIdx.x; p < events; p += gridDim.x) {
        for (int split = warp; split < splits; split += 32)
            sort_list(given, split, p, (int*)stages[warp]);
        __syncthreads();
        const i64 begin = offsets[order[p]], end = offsets[order[p] + 1];
        const i64 first = (begin + 3) / 4, last = max(first, end / 4);  // of the whole 16 bytes
        for (i64 i = first + tid; i < last; i += 1024) ((int4*)out)[i] = ((int4*)ids)[i];
        if (tid < 3 && begin + tid < min(end, first * 4)) out[begin + tid] = ids[begin + tid];
        if (tid < 3 && last * 4 + tid < end) out[last * 4 + tid] = ids[last * 4 + tid];
    }
}

// Copy ids that are sorted already to the host's memory, 16 bytes at a time.
//
//   total   how many; with more than `limit`, nothing is copied
extern "C" __global__ void __launch_bounds__(512) deliver(const int4* __restrict__ ids,
        const i64* __restrict__ total, i64 limit, int4* __restrict__ out) {
    const i64 count = *total > limit ? 0 : (*total + 3) / 4;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * 512)
        out[i] = ids[i];
}
