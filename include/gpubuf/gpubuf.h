/* libgpubuf: the buffers of a gpubufd daemon, by name, from C and C++. See libgpubuf(3). What moves or shares bytes has
 * a function; everything else is a request with JSON, by gpubuf_request().
 *
 *     struct gpubuf_error err;
 *     gpubuf_client *c = NULL;
 *
 *     if (gpubuf_open(NULL, &c, &err) < 0 ||
 *         gpubuf_put(c, "default", "x", gpubuf_from_memory(x, sizeof(x)), NULL, NULL, &err) < 0)
 *         fprintf(stderr, "%s: %s\n", err.slug, err.detail);
 *     gpubuf_close(c);
 *
 * Results. Functions that can fail return 0, or -1 with the error filled in; some return GPUBUF_UNCHANGED (1) if a
 * condition of the caller found nothing new, see struct gpubuf_how. Parameters whose name begins with `ret` are written
 * on success only. Every ret parameter but those that hand over ownership may be NULL, and so may err.
 *
 * Errors. The comment of a function names its own errors, without the prefix GPUBUF_. Every function with an err
 * parameter can also fail as a request does: CANNOT_CONNECT, CONNECTION_LOST, CLIENT_TIMEOUT, BAD_ANSWER, BAD_ARGUMENT,
 * INTERRUPTED, NO_MEMORY; INVALID_NAME, UNAUTHENTICATED, FORBIDDEN; SATURATED, DRAINING, INTERNAL; and if it changes
 * something, STORE_UNAVAILABLE, STORAGE_FULL and DEVICE_LOST. A function that takes a session, pool or stream by name
 * can fail with SESSION_NOT_FOUND and so on.
 *
 * Common parameters. client: that of the calling thread. session, buffer: names. params: see the struct; NULL: all
 * zero.
 *
 * Parameters in structs. All zero means the daemon's defaults. Leave fields zero that are not meant; new fields are
 * added at the end, where there is room for them. Strings are read during the call only.
 *
 * Ownership. Structs are plain values. The result of gpubuf_answer_of() belongs to the client and is valid until its
 * next call. gpubuf_close(), gpubuf_unmap() and gpubuf_adoption_release() end clients, mappings and adoptions.
 *
 * Threads. The library has no variables of its own. A client is used by one thread at a time; clients share nothing, so
 * each thread can have its own. Functions that any thread may call say so. Any thread may use the memory of a mapping,
 * which outlives its client. Transfers over several connections start threads of their own, which block all signals and
 * end before the function returns. Callbacks run on the calling thread alone.
 *
 * No function prints, changes signal handlers, ends the process or throws. */
#ifndef GPUBUF_H
#define GPUBUF_H

#include <gpubuf/client.h>
#include <gpubuf/data.h>
#include <gpubuf/feed.h>
#include <gpubuf/map.h>

#endif
