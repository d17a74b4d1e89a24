/* The bytes of an object as they come, taken when the reader wants them; begun again behind those that came where a
 * connection breaks. Their checksum is looked at before the last of them are given out. */
#ifndef GB_CLI_BACKUP_FETCH_H
#define GB_CLI_BACKUP_FETCH_H

#include "cli/backup/manifest.h"
#include "cli/backup/web.h"

struct gb_fetch {
    struct gb_web *web;
    const struct gb_backup_file *file;
    atomic_uint_fast64_t *done; /* progress */
    char *at;                   /* path or URL */
    int fd;                     /* of a folder's */
    CURLM *multi;
    bool running; /* curl has a transfer */
    bool paused;
    unsigned tried;
    struct gb_web_request request;
    struct gb_web_reply reply;
    uint64_t skip; /* of an answer that begins anew though its rest was asked for */
    char *data;    /* data[taken..held) came and was not given out */
    size_t taken;
    size_t held;
    uint64_t came;  /* bytes of the object */
    uint64_t given; /* of them */
    uint32_t crc;
    char range[64];
    const char *headers[2];
    struct gpubuf_error error; /* why a read failed */
};

/* -1 with err. fetch needs gb_fetch_done() either way. */
int gb_fetch_init(struct gb_fetch *fetch, struct gb_web *web, const struct gb_backup_file *file,
                  atomic_uint_fast64_t *done, struct gpubuf_error *err);
void gb_fetch_done(struct gb_fetch *fetch);

/* A gpubuf_read_fn. */
int64_t gb_fetch_read(void *fetch, void *data, size_t size);

#endif
