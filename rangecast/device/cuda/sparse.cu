// Matching where few events of a tile lie in a box.
//
// A block per tile and part of the boxes. The rows of a box, ANDed, say which of 1,024 events may
// lie in it: eight threads a box, 128 bits each, or fewer threads and more boxes at a time where the
// tile has fewer events. Words that aren't zero are queued by warp. Each
// lane takes one and verifies its bits, one a turn, by the fine codes: min(code - lower,
// upper - code) over the box's lanes is negative for no, positive for yes and zero for doubt, which
// float64 decides. A lane that is done takes the next word at once, across chunks as well. A match
// is appended to the event's list; lists are nearly in order, which sort_lists (finish.cu)
// completes.

#define QUEUE 160  /* words that wait, by warp: at most 31 + 128; the last place is for zeros */

// What a lane has at hand: a word of events, and the box that they may lie in.
struct Hand {
    u32 word, finer[LANES], axes[AXIS_WORDS], box;
    int first;  // event of the word's bit 0
};

// Where matches go: `room` places per event and part; or, once all are counted, where `places`
// says.
struct Lists {
    int* out;
    const i64* places;
    u32 room;
    u32* counts;  // [EVENTS], shared
};

// Verify one bit of the word at hand.
__device__ __forceinline__ void verify_one(Hand& hand, const Boxes& boxes, const u16* codes,
        const u16* __restrict__ fine, int filed, const double* __restrict__ points, int dimensions,
        const int* __restrict__ order, const Lists& lists) {
    if (!hand.word) return;
    const int bit = top_bit(hand.word);
    hand.word ^= 1u << bit;
    const u32 e = hand.first + bit;
    u32 least = 0x7fff7fff;
#if CODES_SHARED
    const u16* own = codes + e;
#pragma unroll
    for (int s = 0; s < LANES; ++s)
        least = __viaddmin_s16x2(
            (u32)own[AXIS(hand.axes, s) * EVENTS] * 0xffff0001u, hand.finer[s], least);
#else
    const u16* own = fine + (i64)order[e] * filed;
#pragma unroll
    for (int s = 0; s < LANES; ++s)
        least = __viaddmin_s16x2((u32)own[AXIS(hand.axes, s)] * 0xffff0001u, hand.finer[s], least);
#endif
    if (least & 0x80008000u) return;
    if (!(least & 0xffff) | !(least >> 16) | (HAS_MORE(hand.axes) != 0))
        if (!contains(boxes, hand.box, points + (i64)order[e] * dimensions)) return;
    const u32 at = atomicAdd(&lists.counts[e], 1u);
    if (lists.places) lists.out[lists.places[e] + at] = hand.box;
    else if (at < lists.room) lists.out[e * lists.room + at] = hand.box;
}

// counts   [splits][padded] matches of each place of the order: exact, whatever the room
// places   [splits][padded] or none; `padded` is a multiple of EVENTS
// work     [3] of which the first adds up the boxes that met the hull of a tile
#define SEARCH_PARAMETERS BOXES_PARAMETERS, int box_count, int several, int splits, \
    const u32* __restrict__ all_lists, i64 stride, const int* __restrict__ lengths, int together, \
    const double* __restrict__ points, int dimensions, int filed, int table_rows, \
    const u16* __restrict__ fine, const u16* __restrict__ cells, const int* __restrict__ order, \
    int events, int* __restrict__ out, int room, const i64* __restrict__ places, \
    u32* __restrict__ counts, i64 padded, u64* __restrict__ work
#define SEARCH_GIVEN box_rows, box_finer, box_axes, first_term, term_axis, term_lo, term_hi, owner, \
    box_count, several, splits, all_lists, stride, lengths, together, points, dimensions, filed, \
    table_rows, fine, cells, order, events, out, room, places, counts, padded, work

template <bool FEW> __device__ __forceinline__ void match_tile(SEARCH_PARAMETERS) {
    SHARED_MEMORY
    u32* chunk_rows = (u32*)shared_memory;                // [2][CHUNK][LANES]
    u32* chunk_finer = chunk_rows + 2 * CHUNK * LANES;    // [2][CHUNK][LANES]
    u32* chunk_axes = chunk_finer + 2 * CHUNK * LANES;    // [2][CHUNK][AXIS_WORDS]
    u32* chunk_boxes = chunk_axes + 2 * CHUNK * AXIS_WORDS;  // [2][CHUNK]
    u32* ring = chunk_boxes + 2 * CHUNK;                  // [RING]
    uint2* queues = (uint2*)(ring + RING);                // [32][QUEUE] a word; slot << 5 | its place
    u32* found = (u32*)(queues + 32 * QUEUE);             // [EVENTS]
    u32* warp_counts = found + EVENTS;                    // [2][32]
    Tile tile;
    tile.table = warp_counts + 64;
    tile.hull = tile.table + filed * table_rows * 32;
    tile.top = tile.hull + filed;
    tile.codes = (u16*)(tile.top + filed);

    const Boxes boxes = BOXES_GIVEN;
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    u32 below = (1u << lane) - 1;
    KEEP(below);
    const int number = blockIdx.x / splits, split = blockIdx.x % splits;
    found[tid] = 0;
    make_tables<FEW>(tile, number, filed, table_rows, fine, cells, order, events);

    const u32* list = all_lists ? all_lists + number / together * stride : 0;
    const int total = all_lists ? lengths[number / together] : box_count;
    Part part = part_of(total, list, split, splits, owner, several);
    const i64 first = (i64)split * padded + number * EVENTS;
    const int* own_order = order + number * EVENTS;
    const Lists lists = {places ? out : out + first * room, places ? places + first : 0, (u32)room,
                         found};
    u32 table = shared_address(tile.table) + (lane & 7) * 16;
    KEEP(table);
    uint2* queue = queues + warp * QUEUE;
    // Threads of a box; boxes that a warp filters at a time, and this thread's among them.
    const int threads = words_of<FEW>(events - number * EVENTS) / 4, filtered = 32 / threads;
    const int own_box = lane / threads, own_word = (lane & (threads - 1)) * 4;
    Sift sift = new_sift(ring, warp_counts);
    int fetches = 0, ready = 0;  // chunks fetched; boxes of the one that is there
    u32 met = 0;
    Hand hand;
    hand.word = hand.box = hand.first = 0;
#pragma unroll
    for (int s = 0; s < LANES; ++s) hand.finer[s] = 0;
#pragma unroll
    for (int w = 0; w < AXIS_WORDS; ++w) hand.axes[w] = 0;
#define VERIFY_ONE \
    verify_one(hand, boxes, tile.codes, fine, filed, points, dimensions, own_order, lists)

    __syncthreads();
    for (int turn = 0;; ++turn) {
        put_into_ring(sift, part, turn, below);
        const int take = size_of_chunk(sift, part);
        if (take && tid < CHUNK) {
            const int slot = (fetches & 1) * CHUNK + tid;
            if (tid < take) {
                const i64 box = ring[(sift.head + tid) & (RING - 1)];
                chunk_boxes[slot] = box;
#pragma unroll
                for (int s = 0; s < LANES; s += 4) {
                    fetch<(LANES < 4 ? 4 * LANES : 16)>(
                        chunk_rows + slot * LANES + s, box_rows + box * LANES + s);
                    fetch<(LANES < 4 ? 4 * LANES : 16)>(
                        chunk_finer + slot * LANES + s, box_finer + box * LANES + s);
                }
#pragma unroll
                for (int w = 0; w < AXIS_WORDS; ++w)
                    fetch<4>(chunk_axes + slot * AXIS_WORDS + w, box_axes + box * AXIS_WORDS + w);
            } else {  // row 0 and not row 0: no event
#pragma unroll
                for (int s = 0; s < LANES; ++s) chunk_rows[slot * LANES + s] = 0;
            }
        }
        if (ready) {
            const int chunk = ((fetches - 1) & 1) * CHUNK;
            u32 queued = 0;
            for (int group = warp * filtered;; group += 32 * filtered) {
                const bool is_last = group >= ready;
                if (!is_last) {
                    u32 rows[LANES];
                    load_lanes(rows, chunk_rows + (chunk + group + own_box) * LANES);
                    uint4 in;
#pragma unroll
                    for (int s = 0; s < LANES; ++s) {
                        const uint4 x = shared_quad(table + ROW_LOW(rows[s]) * 128);
                        const uint4 y = shared_quad(table + ROW_HIGH(rows[s]) * 128);
                        if (s == 0) {
                            in = make_uint4(x.x & ~y.x, x.y & ~y.y, x.z & ~y.z, x.w & ~y.w);
                        } else {
                            in.x &= x.x & ~y.x; in.y &= x.y & ~y.y;
                            in.z &= x.z & ~y.z; in.w &= x.w & ~y.w;
                        }
                    }
                    // Words that are zero go to a place of their own that is never read, which is
                    // 5 to 9% faster than a condition. The lanes of a warp write it by one
                    // instruction, so that one of them stands; racecheck reports it nevertheless.
                    const u32 tag = (u32)(group + own_box) << 5 | own_word;
#define ENQUEUE(word, j) { \
                        const u32 some = __ballot_sync(FULL, (word) != 0); \
                        const u32 at = (word) ? queued + __popc(some & below) : QUEUE - 1; \
                        queue[at] = make_uint2(word, tag + j); \
                        queued += __popc(some); }
                    ENQUEUE(in.x, 0) ENQUEUE(in.y, 1) ENQUEUE(in.z, 2) ENQUEUE(in.w, 3)
                    __syncwarp();
                }
                for (;;) {
                    const u32 idle = __ballot_sync(FULL, hand.word == 0), hands = __popc(idle);
                    if (is_last ? queued == 0 : queued < hands) break;
                    const u32 turn_of = __popc(idle & below);
                    if (hand.word == 0 && turn_of < queued) {
                        const uint2 taken = queue[queued - 1 - turn_of];
                        const int slot = chunk + (taken.y >> 5);
                        hand.word = taken.x;
                        hand.first = (taken.y & 31) * 32;
                        load_lanes(hand.finer, chunk_finer + slot * LANES);
#pragma unroll
                        for (int w = 0; w < AXIS_WORDS; ++w)
                            hand.axes[w] = chunk_axes[slot * AXIS_WORDS + w];
                        hand.box = chunk_boxes[slot];
                    }
                    queued = queued > hands ? queued - hands : 0;
                    VERIFY_ONE;
                }
                __syncwarp();
                if (is_last) break;
            }
        }
        test_boxes(sift, part, take, turn, boxes, tile.hull);
        ready = take;
        if (take) { ++fetches; met += take; }
        fetched_all();
        __syncthreads();
        if (is_sifted(sift, part) && ready == 0) break;
    }
    while (__any_sync(FULL, hand.word != 0)) VERIFY_ONE;
    __syncthreads();
    if (number * EVENTS + tid < events) counts[first + tid] = found[tid];
    if (tid == 0) atomicAdd(work, (u64)met);
}

extern "C" __global__ void __launch_bounds__(1024, 1) match_sparse(SEARCH_PARAMETERS) {
    match_tile<false>(SEARCH_GIVEN);
}

// For a single tile that is at most half full. A kernel of its own, since the numbers that depend on
// how full it is take registers, which would make the other one 4% slower.
extern "C" __global__ void __launch_bounds__(1024, 1) match_few(SEARCH_PARAMETERS) {
    match_tile<true>(SEARCH_GIVEN);
}
