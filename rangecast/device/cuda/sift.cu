// Sifting: all threads of a block test boxes against the hull of the tile, one each at a time.
// Those that meet it wait in a ring, in order, until there are enough of them for a chunk.

struct Sift {
    u32* ring;            // [RING], shared
    u32* counts;          // [2][32], shared: boxes that met the hull, by warp
    int head, tail;       // of the ring; both only grow
    int next_tail;        // after the boxes of the last test
    int place;            // of this thread's box in the last test
    bool pending, met;    // whether the last test's boxes aren't in the ring yet; whether mine met
};

__device__ __forceinline__ Sift new_sift(u32* ring, u32* counts) {
    return Sift{ring, counts, 0, 0, 0, 0, false, false};
}

// Put the boxes of the last test into the ring.
__device__ __forceinline__ void put_into_ring(Sift& sift, const Part& part, int turn, u32 below) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    sift.next_tail = sift.tail;
    if (!sift.pending) return;
    const u32 of_warp = sift.counts[((turn - 1) & 1) * 32 + lane];
    const u32 of_warps = sum_so_far(of_warp, lane);
    const u32 at = sift.tail + __shfl_sync(FULL, of_warps - of_warp, warp);
    sift.next_tail = sift.tail + __shfl_sync(FULL, of_warps, 31);
    const u32 mask = __ballot_sync(FULL, sift.met);
    if (sift.met) sift.ring[(at + __popc(mask & below)) & (RING - 1)] = part.box(sift.place);
}

// The size of the next chunk: a full one, or what is left at the end, or none yet.
__device__ __forceinline__ int size_of_chunk(const Sift& sift, const Part& part) {
    const int waiting = sift.tail - sift.head;
    if (waiting >= CHUNK) return CHUNK;
    return part.next >= part.end && !sift.pending ? waiting : 0;
}

// Test the next boxes, if the ring has room for all of them; move on.
__device__ __forceinline__ void test_boxes(Sift& sift, Part& part, int taken, int turn,
        const Boxes& boxes, const u32* hull) {
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const bool testing =
        part.next < part.end && sift.next_tail - (sift.head + taken) + EVENTS <= RING;
    sift.pending = testing;
    sift.met = false;
    if (testing) {
        sift.place = part.next + tid;
        if (sift.place < part.end) {
            const i64 box = part.box(sift.place);
            u32 rows[LANES];
            load_lanes(rows, boxes.rows + box * LANES);
            sift.met = meets(rows, boxes.axes + box * AXIS_WORDS, hull);
        }
        const u32 count = __popc(__ballot_sync(FULL, sift.met));
        if (lane == 0) sift.counts[(turn & 1) * 32 + warp] = count;
        part.next += EVENTS;
    }
    sift.head += taken;
    sift.tail = sift.next_tail;
}

__device__ __forceinline__ bool is_sifted(const Sift& sift, const Part& part) {
    return part.next >= part.end && !sift.pending && sift.head == sift.tail;
}
