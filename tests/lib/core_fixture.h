/* The fixture of the core's tests: a core over a real backend and a real store in a temporary folder, with blocking
 * helpers for the asynchronous calls. A failure of the fixture itself ends the test. */
#ifndef CORE_FIXTURE_H
#define CORE_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>

#include "core/core.h"
#include "store_fixture.h"

struct core_fixture {
    struct store_fixture store;
    struct gb_backend *backend;
    struct gb_disk *disk;
    struct gb_core_config config;
    struct gb_core *core;
    bool durable;            /* core_fixture_open opens a folder for the bytes of durable buffers */
    const char *disk_faults; /* then: rules; NULL: none */
};

#define CORE_SLOT_BYTES 65536u
#define CORE_SLOTS 8u

/* ThreadSanitizer makes each step ten times as long, and a part of the rounds shows races: how many of n, and the call
 * that fails after the n-th. */
#ifdef __SANITIZE_THREAD__
#define CORE_ROUNDS(n) (((n) + 3) / 4)
#define CORE_FAULT_NEXT(n) ((n) < 4 ? (n) + 1 : (n) + 3)
#else
#define CORE_ROUNDS(n) (n)
#define CORE_FAULT_NEXT(n) ((n) + 1)
#endif

/* Opens the core. spec names the backend; change f->config before _open. If the environment has GB_TEST_BACKEND (for
 * example cuda), it replaces every host:discrete, so that the same tests run on a GPU. */
void core_fixture_prepare(struct core_fixture *f, const char *spec);
void core_fixture_open(struct core_fixture *f);
void core_fixture_init(struct core_fixture *f, const char *spec); /* both */
void core_fixture_close(struct core_fixture *f); /* the core and the store; the backend and the folder stay */
void core_fixture_done(struct core_fixture *f);

/* True on the host backend, where the test chooses the size of memory. */
bool core_on_host(const struct core_fixture *f);
/* Of a backend "fault:OP@N=ERROR:...": whether OP was called N times. If it was not, no greater N would be either. */
bool core_fault_met(const struct core_fixture *f);

/* --- waiting ------------------------------------------------------------------------------------------------------ */

struct core_wake {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned count;
    unsigned seen;
};
void core_wake_init(struct core_wake *w);
void core_wake_done(struct core_wake *w);
void core_wake(void *wake); /* called at the wake */
struct gb_waker core_waker(struct core_wake *w);
void core_wake_wait(struct core_wake *w); /* waits for one more wake */

/* Polls until the condition is true; ends the test after a long time. */
void core_until(bool (*ask)(void *arg), void *arg, const char *what);

/* Waits until no memory, quota or slot is in use, and no call runs. */
void core_until_idle(struct core_fixture *f);

/* --- calls, waited for: 0, or -1 with err ------------------------------------------------------------------------- */

/* One of any type, as the function of the core wants it. */
union core_any_call {
    struct gb_call *base;
    struct gb_session_call *session;
    struct gb_buffer_call *buffer;
    struct gb_attributes_call *attributes;
    struct gb_scan_call *scan;
    struct gb_pool_call *pool;
    struct gb_stream_call *stream;
    struct gb_hold_call *hold;
    struct gb_event_call *event;
    struct gb_multipart_call *multipart;
    struct gb_lease_call *lease;
};
union core_any_call core_any_call_new(void (*done)(void *arg), void *arg); /* large enough for each; as gb_call_new */

/* A call that the test starts itself: core_call_begin, then the core's function with c->call, then core_call_end. */
struct core_call {
    struct core_wake wake;
    union core_any_call call;
};
void core_call_begin(struct core_call *c);
bool core_call_over(struct core_call *c); /* without waiting */
int core_call_wait(struct core_call *c, struct gb_error *err);
void core_call_free(struct core_call *c);
int core_call_end(struct core_call *c, struct gb_error *err); /* waits and frees */

/* Calls the function, whose last parameter is a call of that type (a member of core_any_call), and waits for its
 * end. */
#define core_do(err, type, function, ...)                                                                              \
    __extension__({                                                                                                    \
        struct core_call core_do_call;                                                                                 \
                                                                                                                       \
        core_call_begin(&core_do_call);                                                                                \
        function(__VA_ARGS__, core_do_call.call.type);                                                                 \
        core_call_end(&core_do_call, err);                                                                             \
    })

struct gb_name core_name(const char *text);
struct gb_locator core_at(const char *session, const char *name);
int core_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_error *err);
int core_session_patch(struct gb_core *core, const char *name, const struct gb_session_params *params,
                       struct gb_error *err);
int core_session_delete(struct gb_core *core, const char *name, struct gb_error *err);
int core_buffer_create(struct gb_core *core, const char *session, const char *name, uint64_t bytes, unsigned wait_ms,
                       struct gb_error *err);
int core_buffer_delete(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
/* In the order of that stream. */
int core_buffer_delete_on(struct gb_core *core, const char *session, const char *name, const char *stream,
                          struct gb_error *err);
/* As gb_buffer_get: what has labels holds a reference. */
int core_buffer_get(struct gb_core *core, const char *session, const char *name, struct gb_buffer_rec *ret,
                    struct gb_error *err);

struct gb_session_params core_session_params(const char *name);

/* What a list visits: the names, with a blank after each, in the order of the ids. core_list_buffer visits buffers. */
struct core_listing {
    char text[400];
    unsigned count;
    unsigned stop_at;
    int64_t last_id;
};
int core_list_buffer(void *listing, const struct gb_buffer_rec *rec, struct gb_error *err);

/* uint8, one dimension. */
struct gb_upload_params core_upload_params(const char *session, const char *name, uint64_t bytes);

/* Begins, sends, ends, waits. rec may be NULL. */
int core_upload(struct gb_core *core, const struct gb_upload_params *params, const void *data,
                struct gb_buffer_rec *ret_rec, struct gb_error *err);
/* Sends data[0..n) into an upload that was begun with the wake callback of w. */
int core_upload_send(struct gb_upload *upload, struct core_wake *w, const void *data, size_t n, struct gb_error *err);
int core_upload_finish(struct gb_upload *upload, struct core_wake *w, struct gb_buffer_rec *ret_rec,
                       struct gb_error *err);

/* Opens, reads all of [offset, offset + n), closes. */
int core_download(struct gb_core *core, const char *session, const char *name, uint64_t offset, uint64_t n, void *out,
                  struct gb_error *err);
int core_download_read(struct gb_download *download, struct core_wake *w, void *out, size_t n, struct gb_error *err);

/* A download of a buffer of the session "default", which the test ends. */
struct core_reading {
    struct gb_download *download;
    struct core_wake wake;
};
int core_reading_open(struct core_reading *r, struct core_fixture *f, const char *name, struct gb_error *err);

/* Fills out with bytes that depend on seed. */
void core_bytes(unsigned seed, void *out, size_t n);

/* --- holding a session's stream back ------------------------------------------------------------------------------ */

struct core_gate {
    sem_t entered;
    sem_t opened;
};
/* Blocks the stream of a session, which must have one. Returns when the stream has reached the gate. */
void core_gate_close(struct core_gate *gate, struct core_fixture *f, const char *session);
void core_gate_open(struct core_gate *gate);
void core_gate_wait(void *gate); /* on the stream, until it is opened */

#endif
