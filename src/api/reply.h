/* Replies: records and numbers as JSON, and how a reply is sent: at once, kept for many clients, or made on a thread
 * of the core. */
#ifndef GB_API_REPLY_H
#define GB_API_REPLY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "api/context.h"
#include "base/json_writer.h"
#include "base/process.h"
#include "core/core.h"
#include "fleet/fleet.h"
#include "http/http.h"
#include "model/model.h"

void gb_render_session(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                       const struct gb_session_view *view);
/* Adds what the directory has of a session besides its owner, as far as it is set: failover, tenant, copies. */
void gb_render_owned(struct gb_json_writer *out, const struct gb_fleet_session *session);
void gb_render_buffer(struct gb_json_writer *out, const char *key, const struct gb_api *api, const char *session,
                      const struct gb_buffer_rec *rec);
void gb_render_pool(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                    const struct gb_pool_view *view);
void gb_render_stream(struct gb_json_writer *out, const char *key, const char *session,
                      const struct gb_stream_view *view);
void gb_render_event(struct gb_json_writer *out, const char *key, const char *session,
                     const struct gb_event_view *view);

/* The same without the braces, for replies that have further members. */
void gb_render_buffer_members(struct gb_json_writer *out, const struct gb_api *api, const char *session,
                              const struct gb_buffer_rec *rec);
void gb_render_pool_members(struct gb_json_writer *out, const struct gb_api *api, const struct gb_pool_view *view);

void gb_render_shape(struct gb_json_writer *out, const char *key, const struct gb_shape *shape);
/* Index and UUID, because an index may name another device after a restart. */
void gb_render_device_id(struct gb_json_writer *out, const char *key, const struct gb_api *api, int device);

/* Adds the members "transfers" and "allocations" to the object that is open. kinds: transfers by direction and kind of
 * memory; NULL when they are not counted by kind. */
void gb_render_counters(struct gb_json_writer *out, const struct gb_counters *counters,
                        const struct gb_level_numbers *level,
                        const struct gb_kind_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT]);

/* Adds the member "sharing": what other processes map. */
void gb_render_sharing(struct gb_json_writer *out, const struct gb_counters *counters, uint64_t leases,
                       uint64_t held_bytes, uint64_t adopted);

/* Opens the object of a list and its "items". gb_render_list_close closes both and adds "next_cursor": that of the
 * next page; NULL when no items follow. */
void gb_render_list_open(struct gb_json_writer *out);
/* A page ends at this size, whatever its limit says. A thousand records of the common kind fit; with labels of 2 KiB
 * each they would take three times as much. */
#define GB_LIST_BYTES (1u << 20)
bool gb_render_list_full(const struct gb_json_writer *out);
void gb_render_list_close(struct gb_json_writer *out, const char *cursor);

/* The health of a device as JSON. */

/* Adds the object "health". Unknown numbers are null; without a source there is only the reason. */
void gb_render_health(struct gb_json_writer *out, const struct gb_health *health);

/* The state of the storage of durable buffers, in one word for all replies that show it. */

/* Where durable changes of the database fail, the storage as a whole has failed. n->present. *ret_why borrows from n;
 * its code is GB_OK in state READY. */
enum gb_disk_state gb_storage_state(const struct gb_storage_numbers *n, const struct gb_error **ret_why);

/* Numbers as JSON that several replies have. */

struct gb_api;

void gb_render_failures(struct gb_json_writer *out, const uint64_t failure[GB_FAILURES], enum gb_failed what);

/* Adds the level and all counts. */
void gb_render_memory(struct gb_json_writer *out, const struct gb_memory_numbers *memory);
/* Adds "allocations_by_kind": each kind of memory that was asked for. */
void gb_render_memory_kinds(struct gb_json_writer *out, const struct gb_memory_numbers memory[GB_KIND_COUNT]);

/* Add "http" and "process". */
void gb_render_server(struct gb_json_writer *out, const struct gb_http_server_stat *stat);
void gb_render_process(struct gb_json_writer *out, const struct gb_process *process);

/* Reads what the kernel knows of this process, and asks it at most every GB_RESPONSE_CACHE_AGE_NS. [any thread] */
void gb_api_process(struct gb_api *api, struct gb_process *ret);

/* Replies: at once, kept for many clients, or made on a thread of the core. */

/* A JSON document as a reply. */

/* Ends the text with a newline and gives it to the response as application/json with this status. The writer is empty
 * afterwards. Returns 0, or -1 with SATURATED when memory is exhausted. */
int gb_json_reply(struct gb_json_writer *out, struct gb_http_response *response, int status, struct gb_error *err);

/* The same, as the last step of a handler. */
enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err);
/* The same with status 200 and an entity tag that is made of the text and begins with the letter kind. The server
 * answers 304 to a client that has this text. */
enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err);

/* A prepared reply that many clients poll. It is rebuilt when what it shows has changed. */

struct gb_response_cache {
    pthread_mutex_t lock; /* held for a comparison or a swap only, never while the text is made */
    struct gb_http_canned *canned;
    char *text; /* of canned, to see whether a new one differs */
    size_t len;
    char etag[80];
    uint64_t sequence; /* of the core when the text was begun */
    uint64_t built_ns;
    uint64_t revision; /* raised with every text that differs */
};

struct gb_response_cache *gb_response_cache_new(void);        /* NULL: no memory */
void gb_response_cache_free(struct gb_response_cache *cache); /* NULL is accepted */

/* How long a text stands in for numbers that move without an acknowledged change (slots in use and the like). */
#define GB_RESPONSE_CACHE_AGE_NS 200000000ULL

/* Returns a reference to the reply when it was made at this sequence and is young enough, else NULL. */
struct gb_http_canned *gb_response_cache_get(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns);

/* Puts a text that was made at this sequence into the cache. Takes the text of out. If its first `stable_bytes` bytes
 * are those of the text before, the entity tag stays: numbers that move by themselves, such as used time, make no reply
 * new. The tag is therefore a weak one, and epoch makes it unique to this process. Returns a reference, or NULL when
 * memory is exhausted. */
struct gb_http_canned *gb_response_cache_put(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                             int64_t epoch, struct gb_json_writer *out, size_t stable_bytes);

/* Replies that take long to make: they are made on a thread of the core while the request waits, so that no HTTP loop
 * walks thousands of objects. */

/* Embedded in what the reply is made of. The first three members are given. */
struct gb_deferred {
    /* Makes the reply, on a thread of the core. The request must not be used. Returns 0, or -1; without *err memory was
     * exhausted. */
    int (*make)(struct gb_deferred *deferred, struct gb_error *err);
    /* Fills the response, on the request's loop. */
    enum gb_step (*reply)(struct gb_deferred *deferred, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err);
    /* Frees it, on either thread. make and reply may not have been called: the request can end before. */
    void (*release)(struct gb_deferred *deferred);

    struct gb_api *api;
    struct gb_http_request *request; /* a reference, until the work has woken it */
    struct gb_core_task work;
    atomic_int refs;      /* the request's and the work's */
    atomic_bool left;     /* the client has gone: make need not begin */
    atomic_bool finished; /* error and what make has made may be read */
    struct gb_error error;
};

/* The last step of a handler. Takes deferred. Returns GB_STEP_WAIT. */
enum gb_step gb_deferred_start(struct gb_http_request *request, struct gb_deferred *deferred);

/* Server-Timing of transfers. */

/* Adds the header for a copy that the device made. Returns 0 or -1. */
int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err);

/* Adds the header for an upload whose last byte came at recv_ns. Returns 0 or -1. */
int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err);

#endif
