// The k best matches of each event, by score; ties go to the subscription that arrived first.
//
// A warp per event reads the lists of matches as match_sparse leaves them, in any order. Each lane
// holds one of the 32 best so far, in order. A candidate that isn't behind the last of them is
// inserted; a subscription that is there already, by another of its boxes, is not. More than 32 are
// found in rounds: each takes those that come after the last of the round before. Where a list has
// more than its room the answer is worthless, and the caller searches again.

// A number that is lower for a higher score. Equal scores have equal ones: -0.0 becomes 0.0.
__device__ __forceinline__ u64 worth_of(double score) {
    const double plain = score + 0.0;
    u64 bits;
    memcpy(&bits, &plain, 8);
    return bits >> 63 ? bits : ~bits & 0x7fffffffffffffffULL;
}

__device__ __forceinline__ bool is_before(u64 worth, i64 arrival, u64 other, i64 other_arrival) {
    return worth < other || (worth == other && arrival < other_arrival);
}

//   rows, scores   [events][k], of which the first found[event] are filled
extern "C" __global__ void __launch_bounds__(256) take_best(const int* __restrict__ lists, int room,
        const i64* __restrict__ places, const u32* __restrict__ counts, i64 padded, int splits,
        const int* __restrict__ order, int events, const int* __restrict__ owner,
        const double* __restrict__ box_scores, const i64* __restrict__ arrivals, int k,
        int* __restrict__ rows, double* __restrict__ scores, i64* __restrict__ found) {
    const int p = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (p >= events) return;
    const u64 nothing = ~0ULL;
    const i64 never = 0x7fffffffffffffffLL, out = (i64)order[p] * k;
    u64 after = 0;            // those up to this one were taken by the rounds before
    i64 after_arrival = -1;
    int taken = 0;
    for (bool more = true; more && taken < k;) {
        u64 worth = nothing, last = nothing;     // mine; of the last of the 32
        i64 arrival = never, last_arrival = never;
        int box = -1;
        for (int split = 0; split < splits; ++split) {
            const i64 at = split * padded + p;
            const int count = places ? counts[at] : min(counts[at], (u32)room);
            const int* list = places ? lists + places[at] : lists + at * room;
            for (int base = 0; base < count; base += 32) {
                const int candidate = base + lane < count ? list[base + lane] : -1;
                u64 its = candidate >= 0 ? worth_of(box_scores[candidate]) : nothing;
                i64 its_arrival = never;
                if (its <= last && candidate >= 0) its_arrival = arrivals[candidate];
                bool enters = candidate >= 0 && its <= last
                    && is_before(its, its_arrival, last, last_arrival)
                    && is_before(after, after_arrival, its, its_arrival);
                u32 entering = __ballot_sync(FULL, enters);
                while (entering) {
                    const int from = __ffs(entering) - 1;
                    entering &= entering - 1;
                    const u64 new_worth = __shfl_sync(FULL, its, from);
                    const i64 new_arrival = __shfl_sync(FULL, its_arrival, from);
                    const int new_box = __shfl_sync(FULL, candidate, from);
                    if (__any_sync(FULL, worth == new_worth && arrival == new_arrival)) continue;
                    const bool stays = is_before(worth, arrival, new_worth, new_arrival);
                    const int place = __popc(__ballot_sync(FULL, stays));
                    const u64 worth_before = __shfl_up_sync(FULL, worth, 1);
                    const i64 arrival_before = __shfl_up_sync(FULL, arrival, 1);
                    const int box_before = __shfl_up_sync(FULL, box, 1);
                    if (lane > place) {
                        worth = worth_before; arrival = arrival_before; box = box_before;
                    }
                    if (lane == place) { worth = new_worth; arrival = new_arrival; box = new_box; }
                }
                last = __shfl_sync(FULL, worth, 31);
                last_arrival = __shfl_sync(FULL, arrival, 31);
            }
        }
        if (box >= 0 && taken + lane < k) {
            rows[out + taken + lane] = owner[box];
            scores[out + taken + lane] = box_scores[box];
        }
        taken += __popc(__ballot_sync(FULL, box >= 0));
        more = __shfl_sync(FULL, box, 31) >= 0;
        after = last;
        after_arrival = last_arrival;
    }
    if (lane == 0) found[order[p]] = min(taken, k);
}
