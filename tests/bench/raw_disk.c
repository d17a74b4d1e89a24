/* What a durable upload of the daemon promises, and nothing else: a checksum of each block, the bytes in a new file by
 * writes past the kernel's cache while more come, a page of header, a sync of the file and of its folder, and one
 * commit that waits for the disk. Small bodies lie in that commit. The file before is removed behind the answer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "direct.h"
#include "model/model.h"
#include "raw.h"
#include "util.h"

#define DATA_AT DIRECT_ALIGN /* behind a page of header */
#define NAME_SIZE 64

static int folder = -1;

void raw_disk_open(const char *dir) {
    folder = direct_folder(dir);
    direct_start();
}

bool raw_disk_wanted(void) {
    return folder >= 0;
}

static void name_of(const struct raw_body *body, long generation, char ret[NAME_SIZE]) {
    snprintf(ret, NAME_SIZE, "%ld.%ld", body->id, generation);
}

static bool in_database(const struct raw_body *body) {
    return body->bytes <= GB_STORED_INLINE_BYTES;
}

/* The bytes up to `have` have come. */
static void sum(struct raw_body *body, uint64_t have) {
    while (body->have < have) {
        size_t block = (size_t)(body->have / GB_STORED_BLOCK_BYTES);
        uint64_t end = (uint64_t)(block + 1) * GB_STORED_BLOCK_BYTES;
        size_t n = (size_t)((end < have ? end : have) - body->have);

        body->blocks[block] = gb_crc32c(body->blocks[block], body->memory + body->have, n);
        body->have += n;
    }
}

/* Whole blocks go out as soon as they are there, the end up to that of its page. */
static void write_out(struct raw_body *body) {
    uint64_t end = body->have == body->bytes ? (body->bytes + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN
                                             : body->have / DIRECT_PIECE_BYTES * DIRECT_PIECE_BYTES;

    while (!in_database(body) && body->written < end) {
        size_t n = end - body->written < DIRECT_PIECE_BYTES ? (size_t)(end - body->written) : DIRECT_PIECE_BYTES;

        direct_write(&body->file, body->memory + body->written, n, DATA_AT + body->written);
        body->written += n;
    }
}

void raw_body_begin(struct raw_body *body, long id, long generation, char *memory, size_t have, uint64_t bytes) {
    char name[NAME_SIZE];

    *body = (struct raw_body){.id = id, .generation = generation, .memory = memory, .bytes = bytes};
    body->blocks = calloc(gb_stored_block_count(bytes) + 1, sizeof body->blocks[0]);
    if (!body->blocks)
        bench_die("no memory");
    name_of(body, generation, name);
    if (!in_database(body))
        direct_create(&body->file, folder, name, DATA_AT + bytes);
    sum(body, have);
    write_out(body);
}

size_t raw_body_next(struct raw_body *body, const struct bench_wire *wire) {
    uint64_t from = body->have;
    uint64_t end = (from / DIRECT_PIECE_BYTES + 1) * DIRECT_PIECE_BYTES;

    if (end > body->bytes)
        end = body->bytes;
    while (body->have < end) {
        ssize_t n = bench_wire_recv(wire, body->memory + body->have, (size_t)(end - body->have));

        if (n <= 0)
            return 0;
        sum(body, body->have + (uint64_t)n);
    }
    write_out(body);
    return (size_t)(body->have - from);
}

static void complete_file(struct raw_body *body, char *header) {
    direct_write(&body->file, header, DATA_AT, 0);
    direct_wait(&body->file);
    direct_sync(&body->file, DATA_AT + body->bytes);
    if (fsync(folder) != 0)
        bench_die("fsync: %s", strerror(errno));
}

static uint32_t joined(const struct raw_body *body) {
    size_t count = gb_stored_block_count(body->bytes);
    uint32_t crc = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        uint64_t left = body->bytes - (uint64_t)i * GB_STORED_BLOCK_BYTES;

        crc = gb_crc32c_join(crc, body->blocks[i], left < GB_STORED_BLOCK_BYTES ? left : GB_STORED_BLOCK_BYTES);
    }
    return crc;
}

static void end(struct raw_body *body, long gone) {
    char name[NAME_SIZE];

    name_of(body, gone, name);
    if (!in_database(body)) {
        direct_wait(&body->file);
        direct_close(&body->file);
        direct_remove(folder, name);
    }
    free(body->blocks);
}

void raw_body_complete(struct raw_body *body, char *header) {
    if (!in_database(body))
        complete_file(body, header);
    raw_record_stored(body, joined(body));
    end(body, body->generation - 1);
}

void raw_body_discard(struct raw_body *body) {
    end(body, body->generation);
}
