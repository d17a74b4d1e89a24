/* HTTP messages as values, and what a handler may do.
 *
 * A handler reads a request and returns a step; it never replies. The server turns the outcome into bytes in one
 * place. A handler runs on an HTTP loop (or, for a large body, on a transfer loop) and must not block. Work that takes
 * time is started elsewhere: the handler returns GB_STEP_WAIT, and the thread that finishes the work calls
 * gb_http_wake(). */
#ifndef GB_HTTP_HTTP_H
#define GB_HTTP_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/caller.h"
#include "base/error.h"

struct gb_client;
struct gb_closer;
struct gb_http_server;
struct gb_tls_context;
struct gb_feed_listener;

enum gb_http_method {
    GB_HTTP_GET,
    GB_HTTP_HEAD, /* routed as GET; the server drops the body */
    GB_HTTP_POST,
    GB_HTTP_PUT,
    GB_HTTP_PATCH,
    GB_HTTP_DELETE,
    GB_HTTP_OPTIONS, /* answered by the server, of every path that a route has */
    GB_HTTP_METHOD_COUNT
};
const char *gb_http_method_name(enum gb_http_method method);
/* Whether a request of this method changes nothing. */
bool gb_http_is_safe(enum gb_http_method method);

struct gb_http_request;
struct gb_http_response;

enum gb_step {
    GB_STEP_REPLY, /* the response is filled */
    GB_STEP_ERROR, /* *err is set; the response's headers are sent with it, its body is dropped */
    GB_STEP_WAIT,  /* request->resume is set; it is called after gb_http_wake() or at request->deadline_ns */
    GB_STEP_BODY   /* request->sink is set; only from a handler of a GB_BODY_STREAM route */
};

typedef enum gb_step gb_http_handler(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err);

/* --- routes ------------------------------------------------------------------------------------------------------- */

enum gb_http_body {
    GB_BODY_NONE,  /* a body is refused */
    GB_BODY_JSON,  /* collected up to the server's limit; request->body */
    GB_BODY_LIST,  /* the same with another limit, json_list_max */
    GB_BODY_STREAM /* the handler is called at the headers and gives a sink */
};

struct gb_http_route {
    enum gb_http_method method;
    const char *path; /* "/v1/sessions/{session}/buffers/{buffer}": captures are whole segments */
    gb_http_handler *handler;
    enum gb_http_body body;
    const void *app;   /* the application's own: the server hands it on with the route */
    const char *query; /* permitted query parameters, separated by spaces */
};

/* --- requests ----------------------------------------------------------------------------------------------------- */

#define GB_HTTP_PARAMS_MAX 4
#define GB_HTTP_QUERY_MAX 16
#define GB_HTTP_HEADERS_MAX 64
#define GB_HTTP_ASIDES_MAX 2

/* Percent-decoded text. NUL-terminated, but may contain a NUL from %00, so that len counts. */
struct gb_http_text {
    const char *s;
    size_t len;
};

struct gb_http_pair {
    struct gb_http_text name;
    struct gb_http_text value;
};

/* Where a streamed body goes. All calls come from one thread at a time, not always the same. The owner embeds it. */
struct gb_http_sink {
    /* 1: *ret_ptr has room for *ret_n > 0 bytes; 0: no room now, gb_http_wake() follows; -1: *err, the request ends. */
    int (*room)(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err);
    /* The first n bytes of the room last given are written. 0 or -1. */
    int (*fill)(struct gb_http_sink *sink, size_t n, struct gb_error *err);
    /* The client sends nothing now; stalled: it has sent nothing for a while. The room last given is void. May be
     * called at any time between pieces. May be NULL. */
    void (*pause)(struct gb_http_sink *sink, bool stalled);
    /* The whole body has arrived. Returns as a handler does: REPLY, ERROR or WAIT. */
    enum gb_step (*end)(struct gb_http_sink *sink, struct gb_http_request *request, struct gb_http_response *response,
                        struct gb_error *err);
    /* The whole body has arrived, and end follows when its bytes have been taken. 0 or -1. May be NULL. */
    int (*arrived)(struct gb_http_sink *sink, struct gb_error *err);
    /* In place of end: the whole body has arrived, and is not what its headers promise. Returns ERROR with *err, which
     * is given, or WAIT until what it brought is taken back. NULL: nothing has to be waited for. */
    enum gb_step (*refused)(struct gb_http_sink *sink, struct gb_http_request *request, struct gb_error *err);
    /* Called exactly once. If the body broke off before end, the upload is abandoned. */
    void (*free)(struct gb_http_sink *sink);
    enum gb_code
        failed; /* set before free if the request was answered with an error; a sink around another hands it on */
};

/* Where a streamed response body comes from. All calls come from one thread at a time, as those of a sink. */
struct gb_http_source {
    /* 1: *ret_n > 0 bytes at *ret_ptr, valid until sent() covers them; 0: no bytes yet, gb_http_wake() follows; -1:
     * *err, the connection is dropped, because the header has gone out. Called only while bytes remain. */
    int (*next)(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
    /* The first n bytes of what next() gave have been handed to the kernel. */
    void (*sent)(struct gb_http_source *source, size_t n);
    /* The client has taken nothing for a while. The bytes that next() gave are void. May be NULL. */
    void (*pause)(struct gb_http_source *source);
    /* Called exactly once; complete says whether every byte was sent. */
    void (*free)(struct gb_http_source *source, bool complete);
};

/* The process at the other end of a UNIX socket, as the kernel says. Lives as long as the connection and the requests
 * that came over it. */
struct gb_http_peer {
    pid_t pid; /* in the daemon's namespace; 0 if it has no number there */
    uid_t uid;
    gid_t gid;
    void *app; /* what gb_http_peer_hold was given; NULL before */
};

/* Where a connection comes from. */
struct gb_http_address {
    uint8_t family; /* 4, 6; 0: a UNIX socket; or GB_HTTP_ADDRESS_UNKNOWN */
    uint8_t bytes[16];
};
#define GB_HTTP_ADDRESS_UNKNOWN 255 /* a client of a trusted proxy, whose address the proxy does not give */
#define GB_HTTP_ADDRESS_SIZE 46
/* "192.0.2.7", "2001:db8::7", "unknown"; "" of a UNIX socket. ret: GB_HTTP_ADDRESS_SIZE bytes. */
void gb_http_address_text(const struct gb_http_address *address, char *ret);
/* The address of IPv4 that one of IPv6 stands for (::ffff:192.0.2.7, of a socket that listens for both); else the
 * same. */
struct gb_http_address gb_http_address_plain(const struct gb_http_address *address);
bool gb_http_address_read(const char *s, size_t n, struct gb_http_address *ret);

struct gb_http_network {
    struct gb_http_address address;
    unsigned bits; /* of the address that count */
};
/* "192.0.2.0/24", "2001:db8::7", or "unix": the UNIX sockets. False: it is neither. */
bool gb_http_network_read(const char *text, struct gb_http_network *ret);
bool gb_http_networks_have(const struct gb_http_network *networks, size_t count, const struct gb_http_address *address);

/* What a client's certificate says, which was verified. Lives as long as the requests of its connection. */
#define GB_HTTP_CERTIFICATE_NAMES 8
struct gb_http_certificate {
    char subject[256];                         /* as RFC 4514 writes it */
    char name[GB_HTTP_CERTIFICATE_NAMES][256]; /* alternative names: "dns:...", "uri:...", "email:...", "ip:..." */
    unsigned names;
    int64_t expires_s;                        /* seconds since 1970 */
    atomic_bool distrusted;                   /* its authority is no longer in force */
    char fingerprint[sizeof("sha256:") + 64]; /* of the whole, in hexadecimal */
};
/* It was verified when its connection began. Returns 0 if it is good now, too, or -1 with UNAUTHENTICATED. */
int gb_http_certificate_check(const struct gb_http_certificate *certificate, struct gb_error *err);
/* What it is called: its subject, else its first name, else its fingerprint. */
const char *gb_http_certificate_text(const struct gb_http_certificate *certificate);

/* DNS names that the server's certificates are for, "*.example.org" among them. Lives as long as the connection. */
struct gb_http_names {
    char **name;
    size_t count;
};

#define GB_HTTP_INSTEAD_SIZE 192
#define GB_HTTP_ID_MAX 128 /* bytes of a request id */

struct gb_http_request {
    void *app; /* gb_http_server_config.app */
    enum gb_http_method method;
    const struct gb_http_route *route;
    struct gb_http_text target;                    /* as received */
    struct gb_http_text shown;                     /* the same without the asides; s is NULL without any */
    struct gb_http_text param[GB_HTTP_PARAMS_MAX]; /* captures of the route, in order */
    char instead[GB_HTTP_INSTEAD_SIZE];            /* room for a capture that the application replaces */
    struct gb_http_text aside[GB_HTTP_ASIDES_MAX]; /* values of gb_http_server_config.asides, in
                                                      order */
    struct gb_http_pair query[GB_HTTP_QUERY_MAX];
    unsigned queries;
    struct gb_http_pair header[GB_HTTP_HEADERS_MAX];
    unsigned headers;
    bool http10;        /* HTTP/1.0 */
    bool close;         /* the client ends the connection after the reply */
    bool by_origin;     /* there are configured origins: replies depend on the page that asks */
    const char *origin; /* the configured origin whose page asks; NULL: no such page */
    bool has_content_length;
    uint64_t content_length;
    bool chunked;                                  /* Transfer-Encoding: chunked; the length is not known */
    bool expect_continue;                          /* the client waits for 100 Continue */
    bool secure;                                   /* it came over TLS */
    unsigned listener;                             /* which of gb_http_server_config.listen_fds it came by */
    const struct gb_http_names *names;             /* NULL: it came without TLS */
    bool local;                                    /* it came over the UNIX socket, and not by a proxy on it */
    struct gb_http_address from;                   /* of the connection, or behind a trusted proxy of the client */
    const struct gb_http_certificate *certificate; /* the client's; NULL: the client showed no certificate */
    uint64_t caller;           /* the application's number of its client, which authorize sets; 0: not known */
    struct gb_http_peer *peer; /* of the UNIX socket; NULL where local is not set, and in HTTP/1.0 (no 1xx there) */
    const char *body;          /* GB_BODY_JSON: the collected body, NUL-terminated; NULL when empty */
    size_t body_len;
    uint64_t started_ns;         /* gb_clock_ns() when the headers were complete */
    char id[GB_HTTP_ID_MAX + 1]; /* X-Request-Id of the answer, and request_id of problem documents */
    struct gb_caller by;         /* whose token it has, as authorize has found */

    /* The handler's own, from the first call to the last; freed by state_free with the request. */
    void *state;
    void (*state_free)(void *state);

    /* Set with GB_STEP_WAIT. deadline_ns is on gb_clock_ns(); at that time resume is called with timed_out set and must
     * not return WAIT again. 0 means the server's longest wait. Resume may be called spuriously. */
    gb_http_handler *resume;
    uint64_t deadline_ns;
    bool timed_out;

    /* May be set with GB_STEP_WAIT: whether the work can still be undone without a trace. act: undoes it, and resume
     * finds that out. The application calls it on any thread before the request has ended; the server calls it when the
     * client has gone. */
    bool (*cancel)(struct gb_http_request *request, bool act);
    /* May be set with it: how far the work is. ret_total UINT64_MAX: not known. Any thread, as cancel. */
    void (*progress)(const struct gb_http_request *request, uint64_t *ret_bytes, uint64_t *ret_total);
    /* May be set with GB_STEP_WAIT for long waits of thousands of requests: their wakes then cost the others
     * nothing. */
    bool park;
    bool detached; /* it continues without a client, see gb_http_detach */

    /* The around hook's own, freed as state is. Goes along if the request is detached. */
    void *hooks;
    void (*hooks_free)(void *hooks);

    struct gb_http_sink *sink; /* set with GB_STEP_BODY; owned by the server from then on */
};

/* Runs resume now and again after each wake, until it no longer returns WAIT, for at most the server's longest wait.
 * Returns what the first run returned. */
static inline enum gb_step gb_http_await(struct gb_http_request *request, gb_http_handler *resume,
                                         struct gb_http_response *response, struct gb_error *err) {
    request->resume = resume;
    request->deadline_ns = 0;
    return resume(request, response, err);
}

/* [any thread, never blocks] The awaited work has happened: resume, room or next is called again soon. While a
 * reference is held, a wake is also permitted before the handler has returned and after the request has ended. */
void gb_http_wake(struct gb_http_request *request);
struct gb_http_request *gb_http_request_ref(struct gb_http_request *request);
void gb_http_request_unref(struct gb_http_request *request);

/* For the around hook, when the handler has returned WAIT: the request continues without its client, and the hook gives
 * the client another answer. Returns the detached request, which has the state, the sink and the hook's own, and no
 * deadline. Wakes of the old address arrive. The detached request may be resumed, and end, before this returns; its
 * reply is dropped. When the server stops, it is resumed with timed_out. Cannot fail after gb_http_may_detach, which
 * returns 0, or -1 with SATURATED, and may be called twice. */
struct gb_http_request *gb_http_detach(struct gb_http_request *request);
int gb_http_may_detach(struct gb_http_request *request, struct gb_error *err);

/* Ties something of the application to the connection, whose end calls peer_gone. May be called from a handler's first
 * call on, for a request that is not detached and whose peer->app is NULL. Returns 0, or -1 with SATURATED if no
 * descriptor is free. */
int gb_http_peer_hold(struct gb_http_request *request, void *app, struct gb_error *err);

/* Whether the peer was in that group when it connected. The request must have a peer. */
bool gb_http_peer_in_group(const struct gb_http_request *request, gid_t gid);

/* Where the request comes from: an address, "unix:1000" (the user's number), or "unix" where the user is not known.
 * peer: of its UNIX socket, or NULL. ret: GB_HTTP_ADDRESS_SIZE bytes. */
void gb_http_client_text(const struct gb_http_request *request, const struct gb_http_peer *peer, char *ret);

/* Returns the value of the first header of that name (whatever its case), or NULL. */
const char *gb_http_header(const struct gb_http_request *request, const char *name);

/* Returns the value of the next header of that name, or NULL after the last. *at begins at 0. */
const char *gb_http_header_next(const struct gb_http_request *request, const char *name, unsigned *at);

/* Reads a header that is one item of structured fields, on one line. Returns 1; 0: it is not given; -1: malformed. */
struct gb_field;
int gb_http_item(const struct gb_http_request *request, const char *name, struct gb_field *ret);

/* Returns the query parameter, or NULL. Repeated parameters are refused before any handler runs. */
const struct gb_http_text *gb_http_query(const struct gb_http_request *request, const char *name);

/* Returns the N of "Prefer: wait=N" in seconds, or fallback_s; at most max_s. *ret_async (may be NULL): whether
 * respond-async is given. */
unsigned gb_http_prefer_wait(const struct gb_http_request *request, unsigned fallback_s, unsigned max_s,
                             bool *ret_async);

/* --- bounds of clients -------------------------------------------------------------------------------------------- */

/* What one client may take. 0: no bound. */
struct gb_http_bound {
    uint64_t requests_s;     /* requests a second, */
    uint64_t requests_burst; /* the burst; 0: two seconds' worth */
    uint64_t bytes_s;        /* bytes of bodies a second, in both directions together, */
    uint64_t bytes_burst;    /* the burst; 0: one second's worth */
    unsigned uploads;        /* open uploads in several requests */
    unsigned waits;          /* requests that wait for long (park) */
    unsigned listeners;      /* of the feed */
};

/* For gb_http_server_config.authorize, when the caller is known: the request counts for its client from now on. token:
 * the number of its token, and what that may take; NULL: what all tokens may. token 0: the client is the address it
 * comes from, unless that is loopback or a UNIX socket and those have no bound. Returns 0, or -1 with
 * TOO_MANY_REQUESTS. A client's record is found in a fixed table: a few hundred nanoseconds, no allocation. */
int gb_http_bound_client(struct gb_http_request *request, uint64_t token, const struct gb_http_bound *bound,
                         struct gb_error *err);
/* Whether tokens have a bound, so that it pays to find out which one the request has. */
bool gb_http_bounds_tokens(const struct gb_http_request *request);
/* gb_http_bound_client for a request whose credential is not valid: it counts for its address. Returns 0 and leaves
 * *err as it is, or -1 and makes it TOO_MANY_REQUESTS: its address has had too many. */
int gb_http_authentication_failed(struct gb_http_request *request, struct gb_error *err);

/* The client opens an upload that outlives the request. *ret: for gb_http_upload_ended, NULL if it has no bound.
 * Returns 0, or -1 with TOO_MANY_REQUESTS. */
int gb_http_upload_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err);
void gb_http_upload_ended(void *client); /* [any thread] NULL is accepted */

/* --- descriptors from clients ------------------------------------------------------------------------------------- */

/* Where the client of a request can hand over one descriptor. */
struct gb_http_fd_mailbox;

/* Sends the client one end of a pair of sockets (SOCK_SEQPACKET) with an interim response, "103 Early Hints". Only if
 * request->peer is set, once, from a handler that then waits; gb_http_wake() follows when a message, or the end, has
 * come over it. Never blocks. Returns 0, or -1 with SATURATED. */
int gb_http_fd_mailbox_open(struct gb_http_request *request, struct gb_http_fd_mailbox **ret, struct gb_error *err);

/* Takes the descriptor. Returns 1: *ret_fd is the caller's; only the server's closer, where room is reserved, may close
 * it. If ret_fd is NULL, it stays. 0: nothing has come yet. -1 with CANNOT_ADOPT: something else than one descriptor
 * has come; or with SATURATED. */
int gb_http_fd_mailbox_take(struct gb_http_fd_mailbox *fd_mailbox, int *ret_fd, struct gb_error *err);

/* Due before the request ends, at the latest from its state_free. NULL is accepted. */
void gb_http_fd_mailbox_free(struct gb_http_fd_mailbox *fd_mailbox);

/* --- responses ---------------------------------------------------------------------------------------------------- */

#define GB_HTTP_RESPONSE_HEADERS_MAX 16
#define GB_HTTP_RESPONSE_TEXT_SIZE 1024
#define GB_HTTP_RESPONSE_FDS_MAX 4

/* A prepared answer shared by many requests. Status, headers and body are fixed, and the body is not copied. If it has
 * an etag, a request whose If-None-Match holds that gets 304. Reference counted, thread-safe. */
struct gb_http_canned;
struct gb_http_canned *gb_http_canned_new(int status, const char *content_type, const char *etag, const void *body,
                                          size_t n); /* copies; NULL when memory is exhausted */
struct gb_http_canned *gb_http_canned_ref(struct gb_http_canned *canned);
void gb_http_canned_unref(struct gb_http_canned *canned);
/* Whether the request's If-None-Match has its tag, so that the answer will be 304. */
bool gb_http_canned_known(const struct gb_http_canned *canned, const struct gb_http_request *request);

struct gb_http_response {
    int status; /* 200 unless changed */
    struct {
        const char *name; /* static */
        const char *value;
    } header[GB_HTTP_RESPONSE_HEADERS_MAX];
    unsigned headers;
    char text[GB_HTTP_RESPONSE_TEXT_SIZE]; /* header values */
    size_t text_used;
    char *long_value; /* one more, which does not fit there; malloc'd, owned */

    /* With GB_STEP_ERROR: further members of the problem document. */
    const char *problem_type; /* static; NULL: that of the error */
    char *problem_members;    /* JSON, ",\"key\":value" and so on; malloc'd, owned */
    size_t problem_members_len;

    /* At most one of the three. */
    char *body; /* malloc'd; owned */
    size_t body_len;
    struct gb_http_canned *canned; /* a reference; status and headers above are ignored */
    struct gb_http_source *source; /* owned */
    uint64_t source_len;
    bool is_vital;       /* must arrive even if long replies fill their memory: counted with the short ones */
    uint64_t unsent_len; /* of a 304: the bytes that a 200 would have; 0: not known */

    struct gb_feed_listener *listener; /* owned; it gets the body first */
    void (*listener_free)(struct gb_feed_listener *listener);

    int fd[GB_HTTP_RESPONSE_FDS_MAX]; /* owned */
    unsigned fds;
};

/* Adds a header. name must be static text; the value is formatted and must be printable. Returns 0, or -1 with INTERNAL
 * if it does not fit. */
int gb_http_response_header(struct gb_http_response *response, struct gb_error *err, const char *name, const char *fmt,
                            ...) __attribute__((format(printf, 4, 5)));
/* The same with a malloc'd value of any length, which is taken also on failure; one for a response. */
int gb_http_response_long_header(struct gb_http_response *response, struct gb_error *err, const char *name,
                                 char *value);
/* Takes a malloc'd body. */
void gb_http_response_take(struct gb_http_response *response, char *body, size_t n);
/* Takes malloc'd members for the problem document, in case the request ends in one. members may be NULL. */
void gb_http_response_problem(struct gb_http_response *response, const char *type, char *members, size_t n);
/* Takes one reference. */
void gb_http_response_canned(struct gb_http_response *response, struct gb_http_canned *canned);
/* Takes the source, which will give `length` bytes. */
void gb_http_response_source(struct gb_http_response *response, struct gb_http_source *source, uint64_t length);
/* Takes a descriptor for the client; only if request->peer is set. All of them go with an interim response, "103 Early
 * Hints", before the final one. If the socket does not take that at once, the connection ends. Returns 0, or -1 with
 * INTERNAL if there are too many; then the descriptor is closed. */
int gb_http_response_fd(struct gb_http_response *response, int fd, struct gb_error *err);
/* Closes those descriptors. */
void gb_http_response_close(struct gb_http_response *response);
/* Frees what it holds (a source with complete = false) and makes it empty. */
void gb_http_response_done(struct gb_http_response *response);

/* --- listeners ---------------------------------------------------------------------------------------------------- */

/* One event, ready for the wire, shared by all listeners. Reference counted, thread-safe. */
struct gb_http_frame {
    atomic_int refs;
    uint64_t id;     /* rises from frame to frame */
    uint64_t topics; /* a bit, or several */
    char owner[129]; /* it is for listeners of this owner and for those that hear all; "": it is for all */
    char about[129]; /* what it is about; "": of nothing that has a name */
    size_t len;
    char text[];
};
/* Copies. NULL when memory is exhausted. */
struct gb_http_frame *gb_http_frame_new(uint64_t id, uint64_t topics, const char *owner, const char *about,
                                        const char *text, size_t len);
struct gb_http_frame *gb_http_frame_ref(struct gb_http_frame *frame);
void gb_http_frame_unref(struct gb_http_frame *frame); /* NULL is accepted */

/* Called on the feed's thread. A hook may block it for some milliseconds. */
struct gb_http_feed_hooks {
    /* Reads the frames after `after` of these topics and this owner ("": all), oldest first, at most max of them. The
     * frames may be about anything.
     * *ret_through: the result is complete up to that id. Returns the number of frames; 0 with *ret_through == after
     * means that there are no newer frames. */
    size_t (*read)(void *app, uint64_t after, uint64_t topics, const char *owner, struct gb_http_frame **frames,
                   size_t max, uint64_t *ret_through);
    uint64_t (*newest)(void *app);
    const char *heartbeat; /* texts */
    const char *farewell;  /* to a listener that is dropped because it does not read */
};

/* Changes with gb_http_server_recheck. */
unsigned gb_http_feed_epoch(const struct gb_http_request *request);

/* What a connection listens to. */
struct gb_http_listening {
    uint64_t after; /* events with higher ids */
    uint64_t topics;
    const char *owner;  /* and events without an owner; "": all events */
    const char *prefix; /* events about what has such a name, and those about nothing; "": about anything */
    unsigned epoch;     /* read before the permission was checked */
};

/* The connection only listens from now on: it gets the head, the response's body, then these events until it ends.
 * what is borrowed. Returns 0, or -1 with SATURATED or UNSUPPORTED. */
int gb_http_response_listen(struct gb_http_request *request, struct gb_http_response *response,
                            const struct gb_http_listening *what, struct gb_error *err);

/* [any thread, never blocks] There are new events. */
void gb_http_server_tell(struct gb_http_server *server);
/* [any thread, never blocks] Permissions have changed: requests under way and listeners whose caller is not in force
 * any more end within a moment. A request that waits or sends its body is answered 401; a reply breaks off. */
void gb_http_server_recheck(struct gb_http_server *server);

/* Makes the response the problem document of *error. Its headers are kept. */
void gb_http_problem(struct gb_http_response *response, const struct gb_http_request *request,
                     const struct gb_error *error);

/* --- the server --------------------------------------------------------------------------------------------------- */

/* How a request ended. */
struct gb_http_end {
    int status;        /* 0: the connection ended before the answer was out */
    enum gb_code code; /* of its problem document; GB_OK: the request did not fail */
    uint64_t ns;       /* since its headers were complete */
    uint64_t body_ns;  /* of that, until the last bytes of its body; 0: no body, or a short one */
    uint64_t received; /* bytes of its body */
    uint64_t sent;     /* bytes of the reply's body that went to the kernel */
    const struct gb_http_response *response;
    const struct gb_http_peer *peer; /* of a UNIX socket, in HTTP/1.0 as well; NULL: TCP */
};

/* What clients may take; zeroed: no bounds. */
struct gb_http_bounds {
    struct gb_http_bound address; /* of each address without a token; of IPv6, of each /64 */
    struct gb_http_bound token;   /* of each token that has no bound of its own */
    bool local;                   /* loopback, and each user of a UNIX socket, has the bound of an address too */
    unsigned failures;            /* to authenticate, of an address, before it has to wait; 0: any number */
    uint64_t handshakes_s;        /* new connections over TLS a second, of an address; 0: any number */
    size_t clients_max;           /* that are remembered; 0: 65536 */
    const struct gb_http_network *trusted; /* proxies whose word on their client counts; borrowed */
    size_t trusted_count;
    bool forwarded;                        /* their word is Forwarded, not X-Forwarded-For */
    const struct gb_http_network *proxies; /* whose connections begin with a header of the PROXY protocol; borrowed */
    size_t proxy_count;
};

/* The bounds that a client can meet. */
enum gb_http_limit {
    GB_HTTP_LIMIT_REQUESTS,
    GB_HTTP_LIMIT_BYTES,
    GB_HTTP_LIMIT_CONNECTIONS,
    GB_HTTP_LIMIT_UPLOADS,
    GB_HTTP_LIMIT_WAITS,
    GB_HTTP_LIMIT_LISTENERS,
    GB_HTTP_LIMIT_REPLIES,
    GB_HTTP_LIMIT_FAILURES,
    GB_HTTP_LIMIT_HANDSHAKES,
    GB_HTTP_LIMITS
};
const char *gb_http_limit_name(enum gb_http_limit limit);

struct gb_http_server_config {
    void *app;
    const struct gb_http_route *routes;
    size_t route_count;
    /* Whether the caller may use request->route; -1 with UNAUTHENTICATED or FORBIDDEN. Sets request->caller. Runs on an
     * HTTP loop. */
    int (*authorize)(void *app, struct gb_http_request *request, struct gb_error *err);
    /* Whether such a caller is still in force; asked after gb_http_server_recheck, on any thread, must not block. Of
     * callers 0 only listeners are asked for. NULL: no caller is, of listeners, and every one of requests. */
    bool (*in_force)(void *app, uint64_t caller);
    /* Called in place of every handler, also when a body is complete or a wait has ended. It calls `handler` itself,
     * once at most, and may give another answer. NULL: handlers are called directly. */
    enum gb_step (*around)(gb_http_handler *handler, struct gb_http_request *request, struct gb_http_response *response,
                           struct gb_error *err);
    /* Called by each loop around the work on the events of one turn; must not block. What handlers began together may
     * be finished together. idle: no further event was there. end_turn returns true to be called again before the loop
     * sleeps. Both may be NULL. */
    void (*begin_turn)(void *app);
    bool (*end_turn)(void *app, bool idle);
    /* Called before an error becomes a problem document: may add members. May be NULL. */
    void (*explain)(void *app, const struct gb_http_request *request, const struct gb_error *error,
                    struct gb_http_response *response);
    /* Called when a request has ended, on the thread that had it; must not block. May be NULL. */
    void (*ended)(void *app, const struct gb_http_request *request, const struct gb_http_end *end);
    /* Called when a thread of the server turned without progress and ends the connection that caused it; for a log. May
     * be NULL. */
    void (*stuck)(void *app, const char *text);
    /* For each peer that gb_http_peer_hold was called for. peer_gone: its connection has ended; once, on a thread of
     * the server; must not block. peer_free: the server does not read peer->app any more; once, on any thread of the
     * server. Each may be NULL. */
    void (*peer_gone)(void *app, struct gb_http_peer *peer);
    void (*peer_free)(void *app, struct gb_http_peer *peer);
    /* Whether the application still has something for that connection, so that it is not closed for being idle. May be
     * NULL. */
    bool (*peer_busy)(void *app, const struct gb_http_peer *peer);
    struct gb_closer *closer; /* borrowed: for descriptors of clients; NULL: no mailboxes */
    const int *listen_fds;    /* listening sockets, TCP or UNIX; owned by the server from a successful start on */
    const bool *listen_tls;   /* which of them are for TLS; NULL: no socket is */
    size_t listen_fd_count;
    struct gb_tls_context *tls; /* what their connections begin with; the server adds a reference */
    uint64_t hsts_s;            /* Strict-Transport-Security of their replies; 0: not sent */
    const char *const *hosts;   /* names accepted in Host besides IP literals and localhost, without port */
    size_t host_count;
    /* Query parameters that every route takes and no handler sees: they are set apart (gb_http_request.aside) and shown
     * nowhere. Static. */
    const char *const *asides;
    size_t aside_count;
    const char *const *origins; /* of pages that may send requests and read replies: "https://HOST[:PORT]". Borrowed */
    size_t origin_count;
    const char *const *pages; /* the only paths to which pages of other origins may link; "/x/": all below it */
    size_t page_count;
    unsigned loops;            /* HTTP loops */
    unsigned bulk_loops;       /* loops for large bodies */
    unsigned connections_max;  /* one more takes the place of a quiet one, or gets 503 and is closed */
    unsigned source_max;       /* connections and listeners of one address, as bounds.local says; 0: no bound */
    size_t connection_memory;  /* bytes for headers of each connection; 8 to 32 KiB */
    size_t json_max;           /* bytes of a JSON body */
    size_t json_list_max;      /* of GB_BODY_LIST */
    uint64_t takeover_bytes;   /* answers this long are streamed; bodies this long leave libmicrohttpd at the header */
    unsigned idle_timeout_s;   /* of keep-alive without a request, and of a header that does not end */
    unsigned header_timeout_s; /* the same of a connection that has had no whole request; 0: as idle_timeout_s */
    unsigned stall_timeout_s;  /* a body that does not move, in or out */
    uint64_t min_rate_bytes_s; /* a body slower than this on average, after stall_timeout_s, is dropped; 0: no bound */
    uint64_t reply_memory_max; /* bytes of replies that wait for their clients; 0: no limit */
    unsigned wait_max_s;       /* the longest GB_STEP_WAIT */
    const struct gb_http_feed_hooks *feed; /* NULL: no feed */
    unsigned listeners_max;
    unsigned heartbeat_s; /* after this time without an event */
    struct gb_http_bounds bounds;
};

/* Starts the threads. Returns 0, or -1 with *err; then listen_fds stay the caller's. */
int gb_http_server_start(const struct gb_http_server_config *config, struct gb_http_server **ret, struct gb_error *err);

/* New connections over TLS begin with this context. The others continue, but those whose client's certificate is not
 * good by its authorities: their requests are refused, and they end. Adds a reference. [any thread] */
void gb_http_server_tls(struct gb_http_server *server, struct gb_tls_context *context);

/* fd, which listens, takes the place of the listening socket that was config.listen_fds[listener], and its number.
 * Connections continue. Not after gb_http_server_drain. [one thread, never blocks] */
void gb_http_server_listen_on(struct gb_http_server *server, size_t listener, int fd);

/* Refuses new connections and closes idle ones; running requests continue. [any thread, never blocks] */
void gb_http_server_drain(struct gb_http_server *server);

/* Waits up to timeout_ms for running requests after drain, then ends the rest, joins the threads and frees. NULL is
 * accepted. */
void gb_http_server_stop(struct gb_http_server *server, unsigned timeout_ms);

/* For an action whose reply grows with the request, before the action is done: its reply will be sent whatever memory
 * it takes. Returns 0, or -1 with SATURATED if other replies fill their memory. */
int gb_http_reply_room(const struct gb_http_request *request, struct gb_error *err);

struct gb_http_server_stat {
    uint64_t reply_memory;    /* bytes of replies that wait for their clients, now */
    uint64_t replies_refused; /* because that was full */
    uint64_t connections;     /* now */
    uint64_t suspended;       /* requests that wait, now */
    uint64_t transfers;       /* connections on transfer loops, now */
    uint64_t accepted;
    uint64_t refused;        /* over connections_max, or source_max */
    uint64_t refused_source; /* of them, over source_max */
    uint64_t displaced;      /* quiet connections that gave way to newcomers */
    uint64_t requests;
    uint64_t listeners; /* now; not among connections */
    uint64_t tls_handshakes;
    uint64_t tls_failures;            /* handshakes that failed */
    uint64_t limited[GB_HTTP_LIMITS]; /* times that a client met its bound; of bytes: that a connection paused */
    uint64_t clients;                 /* that are remembered */
    uint64_t pausing;                 /* connections that wait for their client's bytes, now */
    uint64_t proxied;                 /* connections that began with a header of the PROXY protocol */
    uint64_t proxy_failures;          /* that should have, and lacked it or was malformed */
};
void gb_http_server_stat(struct gb_http_server *server, struct gb_http_server_stat *ret);

/* The server that the request came to. `gb_http_latency` (server/state.h) is what it has measured of each route. */
struct gb_http_server *gb_http_server_of(const struct gb_http_request *request);

#endif
