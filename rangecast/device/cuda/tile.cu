// The tables of a tile, in shared memory: which of 1,024 events lie in which coarse cell or above.
//
//   table   [attributes * table_rows][32] bit e of row c: event e lies in coarse cell c or above;
//           few events take some of a row's words, and the others are copies of these
//   hull    [attributes] lowest row | highest row << 16 that some event lies in
//   codes   [attributes][EVENTS] the fine codes, if CODES_SHARED
//
// The events that may lie in a box are the AND, over its lanes, of one row and not another.

struct Tile {
    u32* table;
    u32* hull;
    u32* top;     // of the hull, while it is made
    u16* codes;
};

// Words of a row that the events of a tile take: all; or, where there are FEW, a power of two, at least
// what a thread reads at a time.
template <bool FEW> __device__ __forceinline__ int words_of(int events) {
    int words = FEW ? 4 : 32;
    while (words < 32 && words * 32 < events) words *= 2;
    return words;
}

// All threads of a block make the tables of its events, one per event. Where a tile has few events,
// several warps take the same 32, and share the attributes.
template <bool FEW> __device__ __forceinline__ void make_tables(const Tile& tile, int number, int filed,
        int table_rows, const u16* __restrict__ fine, const u16* __restrict__ cells,
        const int* __restrict__ order, int events) {
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int words = words_of<FEW>(events - number * EVENTS), word = warp & (words - 1);
    const int place = number * EVENTS + word * 32 + lane;
    const bool valid = place < events;
    const i64 event = valid ? order[place] : 0;
    for (int a = tid; a < filed; a += EVENTS) { tile.hull[a] = 0xffff; tile.top[a] = 0; }
    __syncthreads();
    for (int a = warp / words; a < filed; a += 32 / words) {
        const u32 cell = valid ? cells[event * filed + a] : 0;
#if CODES_SHARED
        tile.codes[a * EVENTS + word * 32 + lane] = valid ? fine[event * filed + a] : 0;
#endif
        const u32 low = __reduce_min_sync(FULL, valid ? cell : 0xffffu);
        const u32 high = __reduce_max_sync(FULL, cell);
        if (lane == 0) { atomicMin(&tile.hull[a], low); atomicMax(&tile.top[a], high); }
        u32* own = tile.table + a * table_rows * 32 + word;
        for (int r = 0; r < table_rows; ++r) {
            const u32 bits = __ballot_sync(FULL, valid && cell >= (u32)r);
            if (lane * words < 32) own[r * 32 + lane * words] = bits;
        }
    }
    __syncthreads();
    for (int a = tid; a < filed; a += EVENTS)
        tile.hull[a] = (a * table_rows + tile.hull[a]) | (a * table_rows + tile.top[a]) << 16;
}

// May a box contain some event of a hull? A dead box has a lower row above every event's.
__device__ __forceinline__ bool meets(const u32 (&rows)[LANES], const u32* axes, const u32* hull) {
    bool all = true;
#pragma unroll
    for (int s = 0; s < LANES; ++s) {
        const u32 own = hull[AXIS(axes, s)];
        all = all & (ROW_LOW(rows[s]) <= (own >> 16)) & (ROW_HIGH(rows[s]) > (own & 0xffff));
    }
    return all;
}

// The boxes that a block searches: those of a list, or all; one of `splits` parts of them. The boxes
// of a subscription stay together, so that it is found once.
struct Part {
    const u32* list;
    int next, end;
    __device__ __forceinline__ u32 box(int place) const { return list ? list[place] : (u32)place; }
};

__device__ __forceinline__ Part part_of(int total, const u32* list, int split, int splits,
        const int* __restrict__ owner, bool several) {
    const int each = ((total + splits - 1) / splits + 31) & ~31;
    Part part = {list, min(total, split * each), min(total, (split + 1) * each)};
    if (several) {
        int* ends[2] = {&part.next, &part.end};
        for (int i = 0; i < 2; ++i) {
            int& at = *ends[i];
            while (at > 0 && at < total && owner[part.box(at)] == owner[part.box(at - 1)]) ++at;
        }
    }
    return part;
}
