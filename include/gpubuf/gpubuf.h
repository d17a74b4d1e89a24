/* libgpubuf: the buffers of a gpubufd, by name, from C and C++. See libgpubuf(3).
 *
 *     struct gpubuf_error err;
 *     gpubuf_client *c = NULL;
 *
 *     if (gpubuf_open(NULL, &c, &err) < 0 ||
 *         gpubuf_put(c, "default", "x", gpubuf_from_memory(x, sizeof(x)), NULL, NULL, &err) < 0)
 *         fprintf(stderr, "%s: %s\n", err.slug, err.detail);
 *     gpubuf_close(c);
 *
 * Results. Functions that can fail return 0, or -1 with the error filled in; some return GPUBUF_UNCHANGED (1) where a
 * condition of yours found nothing new, see struct gpubuf_how. What stands after `ret` in a parameter's name is written
 * on success only. Every ret parameter but those that hand over ownership may be NULL, and so may err.
 *
 * Parameters in structs. All zero means: the daemon's defaults. Set what you mean and leave the rest zero; fields are
 * added at the ends, which have room for that. Strings are read during the call only.
 *
 * Ownership. Records are plain values. Lists are freed with their _done. What gpubuf_answer_of() shows belongs to the
 * client and stays until its next call. Clients and mappings are ended by gpubuf_close() and gpubuf_unmap().
 *
 * Threads. The library has no variables of its own. A client is used by one thread at a time; take one for each thread,
 * they share nothing. A mapping's memory may be used by any thread, and it outlives its client. Transfers over several
 * connections start threads of their own, which block all signals and are gone when the function returns; callbacks are
 * made by the calling thread alone. gpubuf_interrupt() is the one function that other threads, and signal handlers,
 * may call.
 *
 * No function prints, changes signal handlers, ends the process or throws. */
#ifndef GPUBUF_H
#define GPUBUF_H

#include <gpubuf/client.h>
#include <gpubuf/records.h>

#include <gpubuf/calls.h>
#include <gpubuf/data.h>
#include <gpubuf/feed.h>
#include <gpubuf/map.h>

#endif
