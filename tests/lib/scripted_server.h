/* A server of HTTP on a thread: gives the answers of a script, one for each request, and keeps what it was asked. */
#ifndef GB_SCRIPTED_SERVER_H
#define GB_SCRIPTED_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_SCRIPTED_MAX 24

struct gb_scripted_answer {
    const char
        *head; /* "200 OK", and further header lines behind "\r\n"; NULL: the connection ends without an answer */
    const char *body;  /* NULL: empty */
    uint64_t announce; /* a Content-Length beyond the body's: the connection ends behind that; 0: the body's own */
};

struct gb_scripted_request {
    char head[4096]; /* with a NUL in place of the blank line */
    char *body;
    size_t bytes;
};

struct gb_scripted {
    int listener;
    int port;
    char url[64];
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    struct gb_scripted_answer script[GB_SCRIPTED_MAX];
    size_t length;
    struct gb_scripted_request seen[GB_SCRIPTED_MAX];
    size_t count; /* of requests; one beyond the script ends the test */
};

void gb_scripted_start(struct gb_scripted *server, const struct gb_scripted_answer *script, size_t length);
void gb_scripted_stop(struct gb_scripted *server);

/* Whether request i begins with "METHOD TARGET ". */
bool gb_scripted_asked(const struct gb_scripted *server, size_t i, const char *start);
/* The value of a header of request i, in a place that the next call uses again; NULL where there is none. */
const char *gb_scripted_header(const struct gb_scripted *server, size_t i, const char *name);

#endif
