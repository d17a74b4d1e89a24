/* The importer as a daemon that adopts: its backend imports the other process's memory, reads it, writes it and
 * releases it. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "import.h"

struct adopter {
    struct gb_backend *be;
    struct gb_stream *stream;
    unsigned char *pinned; /* both parts, side by side */
    struct gb_location place;
    uint64_t bytes;
};

/* Copies between the memory and the importer's pinned memory, and waits. */
static int move_parts(struct adopter *a, bool out, struct gb_error *err) {
    const struct import_parts p = import_parts_of(a->bytes);
    struct gb_location there = a->place;
    struct gb_location here = {.kind = GB_KIND_PINNED, .ptr = a->pinned};
    enum gb_copy_way way;

    if (gb_mem_move(a->be, out ? &here : &there, out ? &there : &here, p.first_bytes, a->stream, &way, err) < 0)
        return -1;
    there.ptr = (char *)there.ptr + p.last_at;
    here.ptr = a->pinned + p.first_bytes;
    if (gb_mem_move(a->be, out ? &here : &there, out ? &there : &here, p.last_bytes, a->stream, &way, err) < 0)
        return -1;
    return gb_stream_sync(a->be, a->stream, err);
}

/* Counts the pinned bytes that differ from the seed's pattern, then replaces them with the next seed's. */
static uint64_t turn(struct adopter *a, unsigned seed) {
    const struct import_parts p = import_parts_of(a->bytes);
    uint64_t wrong = 0;
    uint64_t i;

    for (i = 0; i < p.first_bytes + p.last_bytes; i++) {
        uint64_t at = i < p.first_bytes ? i : p.last_at + i - p.first_bytes;

        wrong += a->pinned[i] != import_byte(seed, at);
        a->pinned[i] = import_byte(seed + 1, at);
    }
    return wrong;
}

static int adopt(struct adopter *a, const struct import_request *request, int fd, struct import_answer *answer,
                 struct gb_error *err) {
    const struct gb_export *e = &request->export;
    struct gb_import what = {.way = e->way,
                             .fd = fd,
                             .device = e->device,
                             .map_bytes = e->way == GB_EXPORT_VMM ? e->map_bytes : 0,
                             .offset = e->offset,
                             .bytes = request->bytes};
    char note[GB_BACKEND_NOTE_SIZE];

    memcpy(what.handle, e->handle, sizeof(what.handle));
    a->bytes = request->bytes;
    if (gb_backend_open(request->adopter, &a->be, note, err) < 0 || gb_stream_create(a->be, 0, &a->stream, err) < 0 ||
        gb_pin_alloc(a->be, 2 * IMPORT_PART_BYTES, (void **)&a->pinned, err) < 0 ||
        gb_mem_import(a->be, &what, &a->place, err) < 0)
        return -1;
    if (move_parts(a, true, err) < 0)
        return -1;
    answer->wrong_bytes = turn(a, request->seed);
    if (move_parts(a, false, err) < 0)
        return -1;
    return gb_mem_import_end(a->be, &a->place, err);
}

void import_adopt(const struct import_request *request, int fd, struct import_answer *answer) {
    struct adopter a = {.be = NULL};
    struct gb_error err = GB_ERROR_INIT;

    if (adopt(&a, request, fd, answer, &err) < 0)
        snprintf(answer->why, sizeof(answer->why), "%.190s", err.detail);
    if (a.be) {
        gb_stream_destroy(a.be, a.stream);
        gb_pin_free(a.be, a.pinned);
    }
    gb_backend_close(a.be);
}
