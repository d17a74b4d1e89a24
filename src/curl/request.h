/* HTTP to others: the one client of the daemon, of libgpubuf and of gpubuf, and the only folder that knows libcurl.
 * One request is a gb_http_ask, embedded by its owner. Many run at a time on one thread and share connections
 * (gb_http_client_start, _run), or one runs by itself while its caller waits (gb_http_ask_perform). Redirects are not
 * followed. It knows no errors of the daemon or of libgpubuf: what went wrong is an enum gb_http_outcome and text. */
#ifndef GB_CURL_REQUEST_H
#define GB_CURL_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GB_HTTP_UNKNOWN UINT64_MAX /* a body whose length is not known */
#define GB_HTTP_WHY_SIZE 256

/* The start and the end of libcurl's use, which libcurl counts. Returns 0 or -1. */
int gb_http_begin(void);
void gb_http_end(void);

/* What TLS is checked by, and what this side shows of itself. NULL or "": not given. */
struct gb_http_tls {
    const char *ca;   /* authorities: a file, or a folder with ca_alone; NULL: those of the system */
    const char *cert; /* of this side */
    const char *key;
    bool ca_alone; /* not beside the system's folder of authorities */
    /* The certificates of `ca`, which is a folder then. */
    const void *ca_text;
    size_t ca_bytes;
};

/* A URL in its parts. */
struct gb_http_url {
    char origin[288]; /* "http[s]://HOST:PORT" in lower case, the port always there; "": no such URL, or too long */
    char *path;       /* "/" at least; the caller's */
    bool user;        /* it has a name or a password */
    bool more;        /* it has a query or a fragment */
};
/* Pure. Returns 0, -1: malformed, or -2: no memory. */
int gb_http_url_read(const char *text, struct gb_http_url *ret);
/* Where a Location leads from a URL. Pure. Returns the URL, for free(), or NULL: malformed, or no memory. */
char *gb_http_url_join(const char *from, const char *location);

enum gb_http_outcome {
    GB_HTTP_OK,
    GB_HTTP_STOPPED,     /* gb_http_ask.stop asked for it */
    GB_HTTP_UNREACHABLE, /* no name, or no connection */
    GB_HTTP_TIMED_OUT,
    GB_HTTP_LOST,    /* the connection ended before the answer did */
    GB_HTTP_NO_HTTP, /* what answers does not speak HTTP */
    GB_HTTP_TLS,     /* TLS or a certificate is the cause */
    GB_HTTP_BAD_URL, /* malformed */
    GB_HTTP_NO_MEMORY,
    GB_HTTP_FAILED /* anything else, a callback's refusal too */
};

struct gb_http_client;

/* One request. Its owner may not move it while it is open, and what it points to stays, unless it says "copied". */
struct gb_http_ask {
    const char *method;            /* copied */
    const char *url;               /* copied */
    const char *socket;            /* a UNIX socket that is asked in place of the URL's host. Copied */
    const char *agent;             /* User-Agent. Copied; NULL: no such header */
    const struct gb_http_tls *tls; /* NULL: the client's */
    bool proxied;                  /* proxies of the environment are used */
    bool http1;                    /* HTTP/1.1 over TLS as well, where libcurl may choose HTTP/2 */
    bool once;    /* libcurl may not send it again by itself, which it does when an old connection is found closed */
    bool watched; /* gb_http_client_breaks is of its connections */
    bool large;   /* the bodies may be: libcurl's buffers are large as well */
    bool quick;   /* a name server that is silent does not hold up the end, but a thread may outlive it */
    bool connect_only; /* ends once there is a connection, for gb_http_ask_send and _recv. gb_http_ask_perform alone */
    unsigned connect_ms;
    unsigned total_ms; /* 0: no limit */

    /* The body: JSON in memory, or what `read` gives. Neither: no body. */
    const char *body;
    size_t body_bytes;
    ssize_t (*read)(void *arg, char *data, size_t room); /* 0 at the end, -1 ends the request */
    bool (*rewind)(void *arg);                           /* back to the first byte; false: that cannot be */
    uint64_t read_bytes;                                 /* or GB_HTTP_UNKNOWN */

    /* The answer goes to `answer`, or piece by piece to `write`. False ends the request. */
    size_t answer_max;
    bool (*header)(void *arg, const char *line, size_t n); /* each line of a head. NULL: what a fleet needs is noted */
    bool (*write)(void *arg, const char *data, size_t n);
    /* Set by write, which has taken nothing then: it gets the same bytes again after gb_http_ask_resume. */
    bool pauses;
    void *arg; /* of the callbacks */
    /* Whether the request is to end, asked while gb_http_ask_perform waits. NULL: never. */
    bool (*stop)(void *arg);
    /* Once, on the thread of gb_http_client_run, with what follows set. It may start and cancel others. */
    void (*done)(struct gb_http_ask *ask);

    enum gb_http_outcome outcome;
    int status;                  /* 0: no answer, or not the whole answer */
    bool sent;                   /* something of the request may have arrived */
    char why[160];               /* unless there is a status: the kind of failure */
    char said[GB_HTTP_WHY_SIZE]; /* the same with what libcurl says of the case */
    int os_errno;                /* of a connection that failed; 0: not known */
    int connects;                /* new connections that it took */
    double took_ms;              /* negative: not known */
    bool too_long;               /* the answer had more than answer_max bytes */
    char *answer;                /* NUL-terminated; freed by the owner */
    size_t bytes;
    int64_t date_s;     /* of the answer, seconds since the epoch; 0: not given */
    bool date_told;     /* by a hub, of the directory */
    unsigned suspect_s; /* a hub is in doubt of the directory for that long; 0: it is not */
    int64_t wall_us;    /* when the answer had arrived */
    int fd;             /* of connect_only */

    /* The client's. */
    void *easy;
    void *header_list;
    bool lacks_memory;
    struct gb_http_client *client;
    size_t room;
};

/* One more header line, copied, before the start of the request. A line "Name:" keeps libcurl from sending that header.
 * A lack of memory is reported by the start; line NULL: there was none for it. */
void gb_http_ask_header(struct gb_http_ask *ask, const char *line);

/* Connections that are kept, and the requests that use them: one thread's. tls: copied, but for ca_text; may be NULL.
 * resumes: TLS sessions are kept from request to request, if one runs at a time. NULL: no memory. */
struct gb_http_client *gb_http_client_new(const struct gb_http_tls *tls, bool resumes);
/* Cancels what is open. NULL is accepted. */
void gb_http_client_free(struct gb_http_client *client);

/* How often the last connection by which asks that are `watched` were answered has ended: the other side may be another
 * process since. Idle connections count, and one that ends ends a wait. */
uint64_t gb_http_client_breaks(struct gb_http_client *client);

/* Returns 0, or -1 without memory: done does not run. */
int gb_http_client_start(struct gb_http_client *client, struct gb_http_ask *ask);
/* done does not run. One that is not open is accepted. */
void gb_http_client_cancel(struct gb_http_ask *ask);
/* Waits at most that long for something to happen, 0: not at all, and lets it. False: libcurl cannot continue. */
bool gb_http_client_run(struct gb_http_client *client, uint64_t timeout_ms);
/* Waits without running requests. Ends early with gb_http_client_wake. */
void gb_http_client_pause(struct gb_http_client *client, int ms);
/* Ends a wait. [any thread] */
void gb_http_client_wake(struct gb_http_client *client);
/* From now on a wait ends also while one of the two descriptors is readable. */
void gb_http_client_also(struct gb_http_client *client, int a, int b);
/* Lets a request continue that `pauses`. Its write may run before this returns. */
void gb_http_ask_resume(struct gb_http_ask *ask);

/* Runs one request over a connection of its own. Returns ask->outcome; done is not called. */
enum gb_http_outcome gb_http_ask_perform(struct gb_http_ask *ask);
/* Over the connection of connect_only, without a wait. More than 0: as many bytes; 0: none at present; -1: it failed,
 * with ask->why. At the end of the stream recv fails. */
ssize_t gb_http_ask_send(struct gb_http_ask *ask, const void *data, size_t n);
ssize_t gb_http_ask_recv(struct gb_http_ask *ask, void *room, size_t n);
/* Ends the connection of connect_only. One that is not open is accepted. */
void gb_http_ask_close(struct gb_http_ask *ask);

#endif
