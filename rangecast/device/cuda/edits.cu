// Edits: boxes aren't ordered, so an edit is a write.

// A thread per box that dies: no hull meets it any more.
extern "C" __global__ void kill_boxes(const u32* __restrict__ dead, int count,
        u32* __restrict__ box_rows) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) box_rows[(i64)dead[i] * LANES] |= DEAD_ROW;
}
