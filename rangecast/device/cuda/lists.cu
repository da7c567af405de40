// Lists of boxes for several tiles together: where hulls exclude most boxes, each tile then tests
// only those that may contain an event of its neighbourhood, in the order of their numbers.

// A block per tile: the hull of its events.
extern "C" __global__ void __launch_bounds__(1024) find_hulls(const u16* __restrict__ cells,
        const int* __restrict__ order, int events, int filed, int table_rows,
        u32* __restrict__ hulls) {
    SHARED_MEMORY
    u32* low = (u32*)shared_memory;
    u32* high = low + filed;
    const int tid = threadIdx.x, place = blockIdx.x * EVENTS + tid;
    for (int a = tid; a < filed; a += EVENTS) { low[a] = 0xffff; high[a] = 0; }
    __syncthreads();
    const i64 event = place < events ? order[place] : -1;
    for (int a = 0; a < filed; ++a) {
        const u32 cell = event >= 0 ? cells[event * filed + a] : 0;
        const u32 least = __reduce_min_sync(FULL, event >= 0 ? cell : 0xffffu);
        const u32 most = __reduce_max_sync(FULL, cell);
        if ((tid & 31) == 0) { atomicMin(&low[a], least); atomicMax(&high[a], most); }
    }
    __syncthreads();
    for (int a = tid; a < filed; a += EVENTS)
        hulls[blockIdx.x * filed + a] = (a * table_rows + low[a]) | (a * table_rows + high[a]) << 16;
}

// A thread per box: a bit for each list that it belongs to. Each box is read once.
//
//   together   tiles that share a list
extern "C" __global__ void __launch_bounds__(256) mark_boxes(const u32* __restrict__ box_rows,
        const u32* __restrict__ box_axes, int boxes, const u32* __restrict__ hulls, int filed,
        int tiles, int together, int lists, u32* __restrict__ marks, int words) {
    SHARED_MEMORY
    u32* hull = (u32*)shared_memory;  // [lists][filed]
    const int tid = threadIdx.x, lane = tid & 31;
    for (int i = tid; i < lists * filed; i += 256) {
        const int first = i / filed * together, a = i % filed;
        u32 low = 0xffff, high = 0;
        for (int t = first; t < min(tiles, first + together); ++t) {
            const u32 own = hulls[t * filed + a];
            low = min(low, own & 0xffff);
            high = max(high, own >> 16);
        }
        hull[i] = low | high << 16;
    }
    __syncthreads();
    for (int base = blockIdx.x * 256; base < boxes; base += gridDim.x * 256) {
        const int box = base + tid;
        u32 rows[LANES], axes[AXIS_WORDS];
        if (box < boxes) {
            load_lanes(rows, box_rows + (i64)box * LANES);
            for (int w = 0; w < AXIS_WORDS; ++w) axes[w] = box_axes[(i64)box * AXIS_WORDS + w];
        }
        for (int list = 0; list < lists; ++list) {
            const bool belongs = box < boxes && meets(rows, axes, hull + list * filed);
            const u32 bits = __ballot_sync(FULL, belongs);
            if (lane == 0 && box < boxes) marks[(i64)list * words + (box >> 5)] = bits;
        }
    }
}

// A block per list: the numbers of the boxes that are marked.
extern "C" __global__ void __launch_bounds__(1024) list_boxes(const u32* __restrict__ marks, int words,
        u32* __restrict__ lists, i64 stride, int* __restrict__ lengths) {
    __shared__ u32 counts[2][32];
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    u32 filled = 0;
    u32* list = lists + blockIdx.x * stride;
    const u32* own = marks + (i64)blockIdx.x * words;
    for (int base = 0, turn = 0; base < words; base += 1024, ++turn) {
        u32 word = base + tid < words ? own[base + tid] : 0;
        const u32 count = __popc(word), so_far = sum_so_far(count, lane);
        if (lane == 31) counts[turn & 1][warp] = so_far;
        __syncthreads();
        const u32 of_warp = counts[turn & 1][lane], of_warps = sum_so_far(of_warp, lane);
        u32 at = filled + __shfl_sync(FULL, of_warps - of_warp, warp) + so_far - count;
        filled += __shfl_sync(FULL, of_warps, 31);
        while (word) {
            list[at++] = (base + tid) * 32 + __ffs(word) - 1;
            word &= word - 1;
        }
    }
    if (tid == 0) lengths[blockIdx.x] = filled;
}
