/* The keeper: a process that holds descriptors of memory and nothing else, so that the memory outlives the daemon. The
 * daemon hands over each descriptor under a number of its own, and takes them all back at its next start.
 *
 * The keeper is this program, started again in a session of its own. It uses no CUDA, no thread and no file. It listens
 * on a socket of the state directory, and talks to one daemon at a time, of its own user or root. When that daemon has
 * gone, another one has keep_for_s seconds to come; then the keeper ends, and the kernel gives the memory back. SIGTERM
 * ends it at once.
 *
 * Messages are packets of one size, each with at most one descriptor. The daemon does not wait for an answer when it
 * hands one over: what the kernel has taken reaches the keeper, also if the daemon dies at once. A descriptor that the
 * keeper has no room for is refused later, which the daemon reads with its next call.
 *
 * A process that speaks to the socket gets all descriptors, so the socket has mode 0600, and the keeper compares the
 * user of each peer. Both ends send the version of their messages first. They part if it differs, so that nothing is
 * misread. */
#ifndef GB_KEEPER_KEEPER_H
#define GB_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define GB_KEEPER_PROGRAM "gpubufd-keeper" /* argv[0] of the process */
#define GB_KEEPER_SOCKET "keeper.sock"     /* in the state directory */
#define GB_KEEPER_FOR_S 60
#define GB_KEEPER_ANSWER_MS 3000 /* for each answer of a keeper; a slower one is replaced */

/* The keeper's main function. Returns -1 if this process was not started to be one, and the program continues; else its
 * exit status. Call it before all else. */
int gb_keeper_main(int argc, char **argv);

struct gb_keeper;

struct gb_keeper_config {
    const char *dir;     /* the state directory; copied */
    unsigned keep_for_s; /* without a daemon; 0: GB_KEEPER_FOR_S */
};

/* Speaks to the keeper of the directory, or starts one. A keeper that does not answer, or has other messages, is ended
 * by SIGKILL and replaced: what it held is lost. Starts a process, so call it before rights are given up. Returns 0 or
 * -1. Errors: INTERNAL with the call that failed, or because another daemon speaks to the keeper. */
int gb_keeper_open(const struct gb_keeper_config *config, struct gb_keeper **ret, struct gb_error *err);

/* Parts from the keeper, which goes on holding what it has for keep_for_s; if that is nothing, it ends. NULL is
 * accepted. */
void gb_keeper_close(struct gb_keeper *keeper);

/* Called for each descriptor, in rising order of the numbers. The descriptor is the callee's. Returns 0 to go on, -1 to
 * end. */
typedef int gb_keeper_item_fn(void *arg, uint64_t id, int fd);

/* Gives every descriptor that is kept; the keeper keeps them. Returns 0, or -1 with the error of fn, or with INTERNAL
 * if the keeper did not answer, went away or sent what it may not. */
int gb_keeper_list(struct gb_keeper *keeper, gb_keeper_item_fn *fn, void *arg, struct gb_error *err);

/* Hands over a duplicate of fd under a number that is not 0, in place of an earlier one. Waits for no answer, but for a
 * keeper that is behind with reading; one that reads nothing for GB_KEEPER_ANSWER_MS counts as gone. Returns 0 or -1.
 * Errors: SATURATED if the kernel takes no more descriptors on their way; INTERNAL if the keeper is gone. [any thread
 * that may wait] */
int gb_keeper_put(struct gb_keeper *keeper, uint64_t id, int fd, struct gb_error *err);

/* Has the keeper close what it has under the number; an unknown number is passed over. Returns 0 or -1, as
 * gb_keeper_put. [any thread that may wait] */
int gb_keeper_drop(struct gb_keeper *keeper, uint64_t id, struct gb_error *err);

struct gb_keeper_stat {
    bool alive; /* false: it has gone, and nothing is kept any more */
    pid_t pid;
    uint64_t kept;    /* put and not dropped, those of a list included */
    uint64_t refused; /* because its descriptors are used up (RLIMIT_NOFILE) */
};

/* As of a tenth of a second ago, or later. [any thread, never blocks] */
void gb_keeper_stat(struct gb_keeper *keeper, struct gb_keeper_stat *ret);

/* --- messages, which tests send as well --------------------------------------------------------------------------- */

#define GB_KEEPER_MAGIC 0x4b425047u /* "GPBK" */
#define GB_KEEPER_VERSION 1u

enum gb_keeper_op {
    GB_KEEPER_HELLO = 1, /* from both; id: how many are kept, keep_for_s of the daemon */
    GB_KEEPER_PUT,       /* with the descriptor */
    GB_KEEPER_DROP,
    GB_KEEPER_LIST, /* answered by one PUT each, then END */
    GB_KEEPER_END,
    GB_KEEPER_REFUSED, /* from the keeper: the PUT of that number */
    GB_KEEPER_BUSY     /* from the keeper: another daemon speaks to it */
};

struct gb_keeper_message {
    uint32_t magic;
    uint16_t version;
    uint16_t op;
    uint64_t id;
};

/* Sends a message; fd -1: without a descriptor. Returns 0, or -1 with errno. [never blocks, with flags MSG_DONTWAIT] */
int gb_keeper_send(int socket, enum gb_keeper_op op, uint64_t id, int fd, int flags);

/* Receives a message. *ret_fd: the descriptor that came with it, for the caller to close, or -1. Returns 1; 0: the
 * other end has gone; -1 with errno, EBADMSG for one that is no message of this version. *ret_cut: a descriptor came,
 * and this process could take no more. */
int gb_keeper_receive(int socket, struct gb_keeper_message *ret, int *ret_fd, bool *ret_cut, int flags);

#endif
