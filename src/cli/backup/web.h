/* Requests to a server of HTTP or S3, by libcurl; signed by it (AWS Signature Version 4) where the place is S3. */
#ifndef GB_CLI_BACKUP_WEB_H
#define GB_CLI_BACKUP_WEB_H

#include <curl/curl.h>

#include "cli/backup/place.h"

#define GB_WEB_TRIES 3

/* A connection; of one thread. */
struct gb_web {
    const struct gb_cli *cli;
    const struct gb_place *place;
    const atomic_bool *stopped; /* another thread gave up; NULL: there is none */
    CURL *easy;
    bool even_so; /* though it was interrupted: tidies up after that */
    struct curl_slist *headers;
    char said[CURL_ERROR_SIZE];
};

struct gb_web_request {
    const char *method;
    const char *object;         /* how messages call what is asked for */
    const char *url;            /* escaped; of S3: with parameters in order, each with its "=" */
    const char *const *headers; /* ended by NULL; may be NULL */
    const void *body;           /* body[0..bytes); may be NULL */
    uint64_t bytes;
    int64_t (*read)(void *arg, void *data, size_t size); /* in place of body: how many bytes, -1 to give up */
    int (*rewind)(void *arg);                            /* to the first byte: 0 or -1 */
    void *arg;
};

struct gb_web_reply {
    int status;
    int retry_after_s;
    uint64_t length; /* Content-Length; GPUBUF_UNKNOWN */
    char etag[128];
    char crc32c[24]; /* as S3 writes it, in base 64 */
    char region[32]; /* of the bucket, where another was asked */
    char *text;      /* the body, with a NUL behind it */
    size_t bytes;
    size_t room;
    size_t sent; /* of the request's body in memory */
};

int gb_web_init(struct gb_web *web, const struct gb_cli *cli, const struct gb_place *place, const atomic_bool *stopped,
                struct gpubuf_error *err);
void gb_web_done(struct gb_web *web);

/* Makes the request, up to three times where that may help, and waits between as long as Retry-After says. 0 with a
 * status below 300 or 404; else -1, with the status in err. ret needs gb_web_reply_done() either way. */
int gb_web_ask(struct gb_web *web, const struct gb_web_request *request, struct gb_web_reply *ret,
               struct gpubuf_error *err);
void gb_web_reply_done(struct gb_web_reply *reply);

/* Its parts, for a download that is taken as it comes: tells libcurl of the request; and what became of it. */
int gb_web_set(struct gb_web *web, const struct gb_web_request *request, struct gb_web_reply *reply,
               struct gpubuf_error *err);
int gb_web_judge(struct gb_web *web, const struct gb_web_request *request, const struct gb_web_reply *reply,
                 CURLcode code, struct gpubuf_error *err);
/* Waits before the next try, the first of which is 1: 0, or -1 when the command was interrupted. */
int gb_web_pause(const struct gb_web *web, unsigned tried, int retry_after_s, struct gpubuf_error *err);

/* Whether the command was interrupted, or another thread gave up. */
bool gb_web_stopped(const struct gb_web *web);

/* The first text between <tag> and </tag> from `at` on; malloc'd, NULL where there is none. *ret_end: behind it. */
char *gb_web_xml(const char *at, const char *tag, const char **ret_end);

#endif
