/* Copies between buffers and slabs: pinned buffers that their client has mapped for writing. No byte goes over a
 * socket. The client checks both ends of each copy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"
#include "util.h"

struct slab {
    gpubuf_client *client;
    gpubuf_mapping *mapping;
    unsigned char *memory;
    char name[SHARE_NAME];
    char buffer[SHARE_NAME];
};

static void copy_up(const struct share *share, struct slab *slab) {
    char path[SHARE_NAME + 16];
    char json[SHARE_NAME + 48];

    snprintf(path, sizeof path, "buffers/%s/copy", slab->buffer);
    snprintf(json, sizeof json, "{\"from\":\"%s\",\"in_place\":%s}", slab->name, share->atomic ? "false" : "true");
    share_ask(slab->client, "POST", path, json);
}

static void copy_down(struct slab *slab) {
    struct gpubuf_error err;

    share_must(gpubuf_mapping_load(slab->mapping, slab->buffer, 0, 0, 0, &err), &err, "load");
}

/* Fills the buffer, clears the slab, and copies the bytes back: the measured copies move these bytes. */
static void look(const struct share *share, struct slab *slab, unsigned char byte) {
    memset(slab->memory, byte, share->bytes);
    copy_up(share, slab);
    memset(slab->memory, 0, share->bytes);
    copy_down(slab);
    if (slab->memory[0] != byte || slab->memory[share->bytes - 1] != byte ||
        memcmp(slab->memory, slab->memory + 1, share->bytes - 1) != 0)
        bench_die("other bytes came back");
}

static void prepare(struct share_hand *hand) {
    const struct share *share = hand->share;
    struct gpubuf_map_params map = {.write = true, .ways = GPUBUF_WAY_MEMFD};
    struct slab *slab = calloc(1, sizeof *slab);
    struct gpubuf_error err;

    if (!slab)
        bench_die("no memory");
    hand->own = slab;
    slab->client = share_open(share);
    snprintf(slab->name, sizeof slab->name, "bench-slab-%u", hand->number);
    snprintf(slab->buffer, sizeof slab->buffer, "bench-target-%u", hand->number);
    share_make_buffer(slab->client, slab->name, share->bytes, "pinned", NULL);
    share_make_buffer(slab->client, slab->buffer, share->bytes, share->kind, NULL);
    share_must(gpubuf_map(slab->client, "default", slab->name, &map, &slab->mapping, &err), &err, "map");
    slab->memory = gpubuf_mapping_info_of(slab->mapping)->memory;
    look(share, slab, (unsigned char)(hand->number + 1));
}

static void work(struct share_hand *hand) {
    const struct share *share = hand->share;
    uint64_t i;

    for (i = 0; i < share->count; i++) {
        if (share->down)
            copy_down(hand->own);
        else
            copy_up(share, hand->own);
    }
}

static void drop_buffer(const struct slab *slab, const char *name) {
    char path[SHARE_NAME + 16];

    snprintf(path, sizeof path, "buffers/%s", name);
    share_ask(slab->client, "DELETE", path, NULL);
}

static void finish(struct share_hand *hand) {
    struct slab *slab = hand->own;
    struct gpubuf_error err;

    share_must(gpubuf_unmap(slab->mapping, &err), &err, "unmap");
    drop_buffer(slab, slab->name);
    drop_buffer(slab, slab->buffer);
    gpubuf_close(slab->client);
    free(slab);
}

void share_slab(const struct share *share) {
    share_print_bytes(share, share_run(share, prepare, work, finish));
}
