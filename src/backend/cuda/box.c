/* Strided copies between a device's memory and pinned memory. */
#include "backend/cuda/internal.h"

/* One side of a copy: where it is, and its pitches. */
struct side {
    char *ptr;
    uint64_t pitch;
    uint64_t plane;
};

struct job {
    struct cuda_backend *be;
    struct gb_stream *stream;
    enum cudaMemcpyKind kind;
    struct side dst;
    struct side src;
    uint64_t width;
    uint64_t rows;
    uint64_t planes;
};

/* The largest step from row to row; every device says one. */
static uint64_t pitch_max(const struct job *job) {
    int pitch = gb_cuda_device_attribute(job->be, job->stream->device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);

    return pitch > 0 ? (uint64_t)pitch : 0;
}

static int copy_row(const struct job *job, char *dst, const char *src, struct gb_error *err) {
    cudaError_t rc = cudaMemcpyAsync(dst, src, job->width, job->kind, job->stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(job->be, rc, "cudaMemcpyAsync", err);
}

static int copy_row_by_row(const struct job *job, struct gb_error *err) {
    uint64_t plane;
    uint64_t row;

    for (plane = 0; plane < job->planes; plane++) {
        for (row = 0; row < job->rows; row++) {
            if (copy_row(job, job->dst.ptr + plane * job->dst.plane + row * job->dst.pitch,
                         job->src.ptr + plane * job->src.plane + row * job->src.pitch, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int copy_rows(const struct job *job, struct gb_error *err) {
    cudaError_t rc = cudaMemcpy2DAsync(job->dst.ptr, job->dst.pitch, job->src.ptr, job->src.pitch, job->width,
                                       job->rows, job->kind, job->stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(job->be, rc, "cudaMemcpy2DAsync", err);
}

static struct cudaPitchedPtr pitched(const struct job *job, const struct side *side) {
    return (struct cudaPitchedPtr){
        .ptr = side->ptr, .pitch = side->pitch, .xsize = job->width, .ysize = side->plane / side->pitch};
}

static int copy_planes(const struct job *job, struct gb_error *err) {
    struct cudaMemcpy3DParms parms = {
        .srcPtr = pitched(job, &job->src),
        .dstPtr = pitched(job, &job->dst),
        .extent = {.width = job->width, .height = job->rows, .depth = job->planes},
        .kind = job->kind,
    };
    cudaError_t rc = cudaMemcpy3DAsync(&parms, job->stream->handle);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(job->be, rc, "cudaMemcpy3DAsync", err);
}

static int run(struct job *job, struct gb_error *err) {
    uint64_t most;

    if (job->rows == 1 && job->planes > 1) {
        job->rows = job->planes;
        job->planes = 1;
        job->src.pitch = job->src.plane;
        job->dst.pitch = job->dst.plane;
    }
    if (job->rows == 1)
        return copy_row(job, job->dst.ptr, job->src.ptr, err);
    most = pitch_max(job);
    if (job->src.pitch > most || job->dst.pitch > most)
        return copy_row_by_row(job, err);
    return job->planes == 1 ? copy_rows(job, err) : copy_planes(job, err);
}

int gb_cuda_box(struct gb_backend *base, const struct gb_location *place, void *pinned, const struct gb_box *box,
                enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const struct side memory = {place->ptr, box->pitch, box->plane};
    const struct side packed = {pinned, box->packed_pitch, box->packed_plane};
    bool pack = direction == GB_COPY_FROM_DEVICE;
    struct job job = {
        .be = be,
        .stream = stream,
        .kind = pack ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
        .dst = pack ? packed : memory,
        .src = pack ? memory : packed,
        .width = box->width,
        .rows = box->rows,
        .planes = box->planes,
    };
    uint64_t extent;
    uint64_t packed_extent;

    if (!gb_kind_of_device(place->kind) || place->device != stream->device || (!pack && direction != GB_COPY_TO_DEVICE))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a box of memory of kind %d of device %d, on a stream of device %d, in direction %d",
                            (int)place->kind, place->device, stream->device, (int)direction);
    if (gb_box_check(box, &extent, &packed_extent, err) < 0 || gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    return extent == 0 ? 0 : run(&job, err);
}
