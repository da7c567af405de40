// Codes: where values and bounds lie among the edges of an attribute.
//
// Up to 16,381 fine edges cut the line of an attribute into cells. The code of a value in cell c is
// 2c + 1. A bound that begins or ends a cell has the even code beside it, one inside a cell the
// odd code of that cell. So `code == bound` means doubt, and everything else is certain. A missing
// value (+inf) has a cell of its own, behind the others. Some of the edges are coarse as well: they
// are the rows of a tile's table.
//
//   edges           fine edges of all filed attributes; those of attribute a begin at first_edge[a]
//   coarse_of       the coarse cell of each fine cell; those of a begin at first_edge[a] + 2a
//   coarse          number of coarse edges of each attribute

__device__ __forceinline__ int cell_of(const double* __restrict__ edges, int count, double value) {
    if (value == infinity()) return count + 1;
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) >> 1;
        if (edges[middle] <= value) low = middle + 1; else high = middle;
    }
    return low;
}

// A thread per box: file it under the lanes that it was given and code their bounds.
//
//   lane_terms   [boxes][LANES] the terms that are its lanes, counted from the box's first;
//                255: the lane is spare, and lets all events through. None: the first ones
//   table_rows   rows of an attribute in the tile's table
extern "C" __global__ void code_boxes(int first_box, int boxes, const u8* __restrict__ lane_terms,
        const u32* __restrict__ first_term, const u16* __restrict__ term_axis,
        const double* __restrict__ term_lo, const double* __restrict__ term_hi,
        const int* __restrict__ filed_as, const double* __restrict__ edges,
        const int* __restrict__ first_edge, const u16* __restrict__ coarse_of,
        const int* __restrict__ coarse, int table_rows,
        u32* __restrict__ box_rows, u32* __restrict__ box_finer, u32* __restrict__ box_axes) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= boxes) return;
    const i64 box = first_box + i;
    const u32 first = first_term[box], terms = first_term[box + 1] - first;
    u32 axes[AXIS_WORDS], used = 0;
    for (int w = 0; w < AXIS_WORDS; ++w) axes[w] = 0;
    for (int lane = 0; lane < LANES; ++lane) {
        const u32 own = (u32)lane < terms ? lane : 255;
        const u32 term = lane_terms ? lane_terms[(i64)i * LANES + lane] : own;
        u32 a = 0, low = 0, high, fine_low = 0, fine_high = 32767, rough = 0;
        if (term == 255) {
            high = coarse[0] + 2;
        } else {
            ++used;
            a = filed_as[term_axis[first + term]];
            const double lo = term_lo[first + term], hi = term_hi[first + term];
            const double* cuts = edges + first_edge[a];
            const u16* coarse_cell = coarse_of + first_edge[a] + 2 * a;
            const int count = first_edge[a + 1] - first_edge[a];
            high = coarse[a] + 2;
            if (lo > -largest()) {
                const int c = cell_of(cuts, count, lo);
                const bool begins = c == count + 1 || (c > 0 && lo == cuts[c - 1]);
                fine_low = 2 * c + !begins;
                low = coarse_cell[c];
                if (!(begins && coarse_cell[c] != coarse_cell[c - 1])) rough |= ROUGH_LOW;
            }
            if (hi != infinity()) {
                const int c = cell_of(cuts, count, hi);
                const bool ends = c < count ? nextafter(hi, infinity()) == cuts[c] : hi == largest();
                fine_high = 2 * c + 1 + ends;
                high = coarse_cell[c] + 1;
                if (!(ends && coarse_cell[c + 1] != coarse_cell[c])) rough |= ROUGH_HIGH;
            }
        }
        const u32 base = a * table_rows;
        box_rows[box * LANES + lane] = (base + low) | rough | (base + high) << 22;
        box_finer[box * LANES + lane] = (0u - fine_low & 0xffff) | fine_high << 16;
        axes[lane / 4] |= a << (8 * (lane & 3));
    }
    if (used < terms) axes[0] |= 128;
    for (int w = 0; w < AXIS_WORDS; ++w) box_axes[box * AXIS_WORDS + w] = axes[w];
}

// A thread per value: if its attribute is filed, its fine code and its coarse cell. -inf, which no
// attribute has but an array may hold, gets code 0: in doubt with every box that is open below.
// It also clears what later kernels add to; and where `order` is given, events keep their own.
//
//   points     may lie in the host's memory: then `copy` takes them, for later kernels
//   has_nan    set to 1 if some value is NaN, in the host's memory
extern "C" __global__ void code_events(const double* __restrict__ points, int events, int dimensions,
        int filed, const int* __restrict__ filed_as, const double* __restrict__ edges,
        const int* __restrict__ first_edge, const u16* __restrict__ coarse_of,
        u16* __restrict__ fine, u16* __restrict__ cells, int* __restrict__ order,
        u64* __restrict__ work, i64* __restrict__ offsets, double* __restrict__ copy, u64* has_nan) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (i64)events * dimensions) return;
    if (i == 0) work[0] = work[1] = work[2] = offsets[0] = 0;
    const i64 event = i / dimensions;
    const int axis = (int)(i - event * dimensions), a = filed_as[axis];
    const double value = points[i];
    if (copy) copy[i] = value;
    if (order && axis == 0) order[event] = (int)event;
    if (value != value) *has_nan = 1;
    if (a < 0) return;
    const int from = first_edge[a], c = cell_of(edges + from, first_edge[a + 1] - from, value);
    fine[event * filed + a] = value == -infinity() ? 0 : 2 * c + 1;
    cells[event * filed + a] = coarse_of[from + 2 * a + c];
}
