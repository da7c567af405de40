// Order of the events of a batch: near ones together, so that tiles have small hulls.
//
// The key of an event is made of the top bits of its coarse cells, interleaved, as a Gray code:
// neighbours differ in one bit. One histogram, one scan (finish.cu), one scatter.

// A thread per event.
//
//   bits     how many bits of each attribute the key has
//   places   [attributes][8] where these bits go, the top one first
extern "C" __global__ void make_keys(const u16* __restrict__ cells, int events, int filed,
        const int* __restrict__ coarse, const int* __restrict__ bits, const int* __restrict__ places,
        u32* __restrict__ keys, u32* __restrict__ histogram) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= events) return;
    u32 key = 0;
    for (int a = 0; a < filed; ++a) {
        if (!bits[a]) continue;
        const u32 scaled = cells[(i64)i * filed + a] * 256u / (coarse[a] + 1);
        const u32 level = scaled < 255 ? scaled : 255;
        for (int b = 0; b < bits[a]; ++b) key |= ((level >> (7 - b)) & 1) << places[a * 8 + b];
    }
    key ^= key >> 1; key ^= key >> 2; key ^= key >> 4; key ^= key >> 8; key ^= key >> 16;
    keys[i] = key;
    atomicAdd(&histogram[key], 1u);
}

// A thread per event: its place in the order. `next` has the first place of each key.
extern "C" __global__ void place_events(const u32* __restrict__ keys, int events,
        u32* __restrict__ next, int* __restrict__ order) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < events) order[atomicAdd(&next[keys[i]], 1u)] = i;
}
