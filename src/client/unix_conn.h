/* The connection that is the lease of a client's mappings: HTTP over a UNIX socket, where descriptors come with the
 * answers. Counted: the client and each mapping hold it. */
#ifndef GBC_LINK_H
#define GBC_LINK_H

#include "client/driver.h"
#include "client/internal.h"

#define GBC_LINK_FDS 4

/* What came: descriptors are the caller's. */
struct gbc_link_answer {
    struct gbc_reply reply;
    int fd[GBC_LINK_FDS];
    size_t fds;
};

struct gbc_link *gbc_link_ref(struct gbc_link *link);
void gbc_link_leave(struct gbc_link *link); /* NULL is permitted; the last one closes it */

/* One request at a time, from any thread. json may be NULL. interrupted: checked while waiting, may be NULL. 0 with a
 * status below 400, or -1 with err; after a connection that broke it stays broken. *ret needs _done in every case. */
int gbc_link_ask(struct gbc_link *link, const char *method, const char *target, const char *json, uint32_t wait_s,
                 const atomic_int *interrupted, struct gbc_link_answer *ret, struct gpubuf_error *err);
/* The same for an answer that asks for a descriptor first; fd stays the caller's, -1: no descriptor is given. */
int gbc_link_give(struct gbc_link *link, const char *method, const char *target, const char *json, int fd,
                  uint32_t wait_s, const atomic_int *interrupted, struct gbc_link_answer *ret,
                  struct gpubuf_error *err);
void gbc_link_answer_done(struct gbc_link_answer *answer); /* closes what was not taken (set to -1) */

bool gbc_link_alive(const struct gbc_link *link);
int gbc_link_fd(const struct gbc_link *link);

/* The client's link; a new one if the last has broken or none was made yet. 0, or -1 with err. */
int gbc_link_up(gpubuf_client *client, struct gpubuf_error *err);

/* The driver, opened on first use and owned by the connection. Returns NULL with err if it cannot be opened. */
struct gbc_driver *gbc_link_driver(struct gbc_link *link, struct gpubuf_error *err);

#endif
