/* A client, its errors, and requests in general. Part of <gpubuf/gpubuf.h>. */
#ifndef GPUBUF_CLIENT_H
#define GPUBUF_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Texts in structs are NUL-terminated; times are as the daemon writes them, RFC 3339 in UTC. */
#define GPUBUF_NAME_SIZE 129 /* of sessions, pools, streams, events, buffers, with the NUL */
#define GPUBUF_WORD_SIZE 24  /* dtypes, kinds, states */
#define GPUBUF_TIME_SIZE 40
#define GPUBUF_ID_SIZE 64
#define GPUBUF_ETAG_SIZE 96
#define GPUBUF_DIMS_MAX 16

/* A number that may be absent. */
struct gpubuf_opt {
    bool set;
    uint64_t value;
};

static inline struct gpubuf_opt gpubuf_some(uint64_t value) {
    struct gpubuf_opt opt = {true, value};

    return opt;
}

struct gpubuf_device_id {
    int index; /* may change when devices come and go; the uuid does not */
    char uuid[64];
};

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* What the daemon can say comes from errors.def, the list that the daemon is built from; what only a client can say
 * begins at 1000. Lines are added to that list at its end alone, so that numbers keep their meaning. */
enum gpubuf_code {
    GPUBUF_OK = 0,
#define GB_ERROR(symbol, slug, status, retryable, title) GPUBUF_##symbol,
#include <gpubuf/errors.def>
#undef GB_ERROR
    GPUBUF_CANNOT_CONNECT = 1000, /* no daemon listens there, or the permission is missing */
    GPUBUF_CONNECTION_LOST,       /* the connection ended before the answer did */
    GPUBUF_CLIENT_TIMEOUT,        /* a time-out of gpubuf_options */
    GPUBUF_BAD_ANSWER,            /* what came is not what a gpubufd says */
    GPUBUF_BAD_ARGUMENT,          /* of this call */
    GPUBUF_INTERRUPTED,           /* a callback or gpubuf_interrupt() asked for it */
    GPUBUF_INPUT_FAILED,          /* the source: a file that cannot be read or ends early */
    GPUBUF_OUTPUT_FAILED,         /* the target: a file that cannot be written, memory that is too small */
    GPUBUF_CHECK_FAILED,          /* the bytes do not have the checksum that the daemon states */
    GPUBUF_NO_MEMORY,             /* of this process */
    GPUBUF_CANNOT_MAP,            /* this process cannot take the mapping: no driver, no UNIX socket, mmap failed */
    GPUBUF_UNKNOWN_PROBLEM,       /* a problem of a daemon newer than this library; slug has its code */
    GPUBUF_TLS_FAILED, /* no connection by TLS that can be trusted: a certificate, or no TLS where it is asked */
};

/* Filled where the failure is detected. Texts are NUL-terminated and cut to fit; empty where there is nothing to
 * say. */
struct gpubuf_error {
    int code;         /* enum gpubuf_code */
    int status;       /* of HTTP; 0 when no answer came */
    bool retryable;   /* the same request may succeed later */
    bool has_numbers; /* limit_bytes, used_bytes, requested_bytes */
    char slug[48];    /* "buffer_not_found"; the stable name of code */
    char title[96];   /* "No such buffer" */
    char detail[512]; /* one sentence: what was wrong and what would be right */
    char request_id[64];
    /* What the layer below said, where it spoke: "cuda", "cudaErrorMemoryAllocation", 2, "cudaMallocFromPoolAsync". */
    char native_domain[16];
    char native_name[64];
    char native_call[64];
    int native_code;
    int retry_after_s; /* the daemon's Retry-After; 0: none */
    uint64_t limit_bytes;
    uint64_t used_bytes;
    uint64_t requested_bytes;
    char native_message[64]; /* "out of memory" */
};

/* The stable name of a code: "buffer_not_found" for GPUBUF_BUFFER_NOT_FOUND, "ok" for 0. Any thread. Returns static
 * text, never NULL. */
const char *gpubuf_code_slug(int code);

/* The code of a slug. Any thread. Returns GPUBUF_UNKNOWN_PROBLEM if the library does not know it. */
int gpubuf_code_find(const char *slug);

/* --- clients ------------------------------------------------------------------------------------------------------ */

typedef struct gpubuf_client gpubuf_client;

struct gpubuf_options {
    /* "http://host:port", "https://host:port", or "unix:///path/to/gpubufd.sock"; "host:port" is taken as http://,
     * "host" as http://host:7070; https:// without a port means 443. NULL: the environment's GPUBUF_URL; without that
     * socket, or GPUBUF_SOCKET; without these the UNIX socket of a daemon on this machine where one is there (in the
     * state directory of this user, of root, or /run/gpubufd.sock), else http://127.0.0.1:7070. */
    const char *url;
    /* The UNIX socket over which buffers are mapped when url is not one. NULL: GPUBUF_SOCKET, then as above when url
     * names this machine by a loopback address. */
    const char *socket;
    /* A bearer token; NULL: GPUBUF_TOKEN; "": none. It goes over https, a UNIX socket, and http to a loopback address
     * (127.0.0.0/8, [::1], localhost); over http to others only with plain_token, else gpubuf_open() refuses. */
    const char *token;
    const char *user_agent;     /* NULL: libgpubuf/VERSION */
    uint32_t connect_timeout_s; /* 0: 10 */
    uint32_t answer_timeout_s;  /* from the request's end to the answer, on top of how.wait_s; 0: 120 */
    uint32_t stall_timeout_s;   /* a transfer that does not move; 0: 60 */
    /* How often a request that failed in a way that may pass (503, 429, connections lost) is made again, with pauses
     * that grow from 50 ms to 2 s, or of Retry-After's length up to 10 s. Only requests that may be made twice are:
     * those that read, PUT, DELETE, and those with an Idempotency-Key. Of 429 only a rate passes by waiting: other
     * bounds and failed authentications are reported at once. 0: 2; UINT32_MAX: never. */
    uint32_t retries;
    void (*trace)(void *arg,
                  const char *line); /* each request and its answer in a line, without secrets; may be NULL */
    void *trace_arg;
    /* Of https. TLS is 1.2 at least, and the daemon's certificate is always verified. cacert: a file of PEM or a folder
     * of such files with the authorities that are trusted in place of the system's; NULL: GPUBUF_CACERT. cert, key:
     * the client's own certificate (its chain behind it) and its key, in PEM, the key without a passphrase; NULL:
     * GPUBUF_CERT, GPUBUF_KEY; a cert without a key has the key in the same file. "": none. */
    const char *cacert;
    const char *cert;
    const char *key;
    bool plain_token; /* permits the token over http to any address; false: GPUBUF_PLAIN_TOKEN=1 does */
    uint64_t room[4];
};

/* Creates a client; no connection is made yet. options may be NULL, and is copied. The caller ends *ret with
 * gpubuf_close(). Any thread. Returns 0 or -1. Errors: BAD_ARGUMENT (of files for https too),
 * NO_MEMORY. */
int gpubuf_open(const struct gpubuf_options *options, gpubuf_client **ret, struct gpubuf_error *err);

/* Closes the connections of a client and frees it. Mappings stay until they are unmapped. client: NULL is permitted. */
void gpubuf_close(gpubuf_client *client);

/* The address that the client talks to: "http://127.0.0.1:7070" or "unix:///var/lib/gpubufd/gpubufd.sock". Returns
 * text of the client, valid until it is closed. */
const char *gpubuf_url(const gpubuf_client *client);

/* The path of the UNIX socket for mappings. Returns text of the client, valid until it is closed, or NULL. */
const char *gpubuf_socket(const gpubuf_client *client);

/* Makes the present call of the client, and every later one, fail with GPUBUF_INTERRUPTED within 100 ms, until
 * gpubuf_resume(). An upload under way leaves nothing behind. Any thread, and signal handlers. */
void gpubuf_interrupt(gpubuf_client *client);

/* Ends the effect of gpubuf_interrupt(). Any thread, and signal handlers. */
void gpubuf_resume(gpubuf_client *client);

/* The other end of a connection by TLS. Texts are "" where there is nothing to say. */
struct gpubuf_peer {
    bool trusted;           /* a request would be made */
    bool wants_certificate; /* the daemon asks for a client's certificate, which it may need or not */
    int64_t left_s;         /* until the certificate expires; negative: it did */
    char why[512];          /* it is not trusted, in one sentence */
    char protocol[16];      /* "TLS1.3" */
    char cipher[48];        /* "AES-256-GCM" */
    char subject[256];      /* "CN=gpu1" */
    char issuer[256];
    char names[512];      /* host names and addresses, ", " between them */
    char not_before[32];  /* RFC 3339 */
    char not_after[32];   /* RFC 3339 */
    char fingerprint[72]; /* SHA-256 of the certificate, in hexadecimal */
    bool names_host;      /* the name or address that was asked is among the names */
    bool issuer_known;    /* the issuer is among the authorities that are trusted */
    uint64_t room[3];
};

/* Connects again and reads the daemon's certificate, without a request and whether it is trusted or not. Proxies of
 * the environment are not used. ret: written on success. Returns 0 or -1. Errors: BAD_ARGUMENT (the client talks no
 * https), CANNOT_CONNECT, TLS_FAILED, INTERRUPTED, NO_MEMORY. */
int gpubuf_peer_get(gpubuf_client *client, struct gpubuf_peer *ret, struct gpubuf_error *err);

/* The version of the library that is linked, such as "0.1.0". Any thread. Returns static text. */
const char *gpubuf_version(void);

/* --- requests ----------------------------------------------------------------------------------------------------- */

#define GPUBUF_UNCHANGED 1

/* How a transfer is to be made. */
struct gpubuf_how {
    const char *if_match;        /* entity tags, with their quotation marks: only when it has one of these */
    const char *if_none_match;   /* "*": only when it is not there. In what reads: GPUBUF_UNCHANGED when it has it */
    const char *idempotency_key; /* the daemon does nothing twice for the same key */
    uint32_t wait_s;             /* Prefer: wait=N; 0: not sent */
    bool async;                  /* Prefer: respond-async. Then ret_operation gets an id, or "" when it is done */
    char *ret_operation; /* GPUBUF_ID_SIZE bytes; needed with async. Where it gets an id, no other ret is written */
    uint64_t room[4];
};

/* The last answer that a client got. Texts are "" for what it did not have. */
struct gpubuf_answer {
    int status;
    const char *body; /* NUL-terminated after `bytes`; of transfers only what is JSON */
    size_t bytes;
    const char *content_type;
    const char *location;
    char etag[GPUBUF_ETAG_SIZE]; /* with its quotation marks, as if_match takes it */
    /* Server-Timing, in milliseconds; negative where not known. */
    double recv_ms;
    double queue_ms;
    double copy_ms;
    double total_ms;
    double took_ms; /* measured here: of the last attempt, from its beginning to the end of the answer */
    struct gpubuf_opt upload_offset; /* Upload-Offset: how many bytes a resumable upload has */
    bool upload_complete;            /* Upload-Complete */
};

/* The last answer that the client got; of a transfer over several connections, the last of their answers. Returns a
 * value of the client, never NULL, valid until its next call. */
const struct gpubuf_answer *gpubuf_answer_of(const gpubuf_client *client);

/* Makes any request: /openapi.json says which there are. method: "GET" and so on; target: "/v1/..." with its query, in
 * which names are as gpubuf_escape() writes them; headers: lines "Name: value", ended by NULL, may be NULL, and with a
 * body of JSON "Content-Type: application/json" among them; body[0..bytes) may be NULL. The answer, of at most 64 MiB,
 * is gpubuf_answer_of(). Returns 0 for every status below 400, 304 included; else -1. Errors: that of the problem
 * document. Prefer: wait=N among the headers adds to the time for the answer, as how.wait_s does. */
int gpubuf_request(gpubuf_client *client, const char *method, const char *target, const char *const *headers,
                   const void *body, size_t bytes, struct gpubuf_error *err);

/* Writes text to ret as it stands in a path or a query. size: bytes of ret, the NUL included. Any thread. Returns 0,
 * or -1 if size is too small. */
int gpubuf_escape(const char *text, char *ret, size_t size);

/* Waits until the operation with that id has ended: how.ret_operation, or the "id" of an answer with status 202.
 * timeout_s: seconds to wait; 0: without a limit. The operation is the JSON of gpubuf_answer_of(). Returns 0 or -1.
 * Errors: OPERATION_NOT_FOUND, CLIENT_TIMEOUT, CANCELLED; if the operation failed, its own error. */
int gpubuf_operation_wait(gpubuf_client *client, const char *id, uint32_t timeout_s, struct gpubuf_error *err);

/* --- fleets ------------------------------------------------------------------------------------------------------- */

/* A request of a session that is at another node of a fleet is redirected there, and the library follows: at most three
 * times, with the ticket that the node gave in place of the token, which is sent to no other host or port. No redirect
 * from https to http is followed (BAD_ANSWER). The bytes of an upload are sent again from their begin; those of a pipe
 * cannot be once they were read (INPUT_FAILED). Mappings are never redirected (NOT_HERE). A client that is opened with
 * the address of the owner, which GET /v1/fleet/sessions/{session} says, asks the owner at once.
 *
 * Each time that a session gets another owner its epoch rises. Answers have it in the header Gpubuf-Epoch, and a client
 * remembers the highest of each session, of at most 64, and sends it along. A former owner that does not know of the
 * other one refuses such a request, and nothing is done (SUPERSEDED): find the owner again. The memory is of one
 * client; gpubuf_fleet_expect() gives it to another. */

/* Tells a client the epoch of a session, as the JSON of another client's answer said it. One that is not higher than
 * what the client knows changes nothing. Any thread. */
void gpubuf_fleet_expect(gpubuf_client *client, const char *session, uint64_t epoch);

#ifdef __cplusplus
}
#endif

#endif
