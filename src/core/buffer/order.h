/* The order of data on streams: which earlier write a request sees, and what it waits for.
 *
 * A request that writes a buffer takes a turn when it is accepted, an upload with its last byte. The turns of a buffer
 * stand in line until they are committed or have failed. A request sees the latest turn in the line that is before it
 * on its stream, or on a stream that an event has ordered before its own; other turns it does not see. It waits for
 * that turn alone:
 *
 * * until its work is queued on the same stream, if the later request is work of the device on the new bytes
 *   (gb_after_see_locked). Such a chain needs no commit in between.
 * * until it is committed or has failed, if the later request needs the bytes themselves, or the memory is written in
 *   place.
 *
 * Commits of one buffer follow each other in the order of the turns. A wait costs no thread: go runs on a lane. */
#ifndef GB_CORE_BUFFER_ORDER_H
#define GB_CORE_BUFFER_ORDER_H

#include <sys/queue.h>

#include "core/buffer/buffer.h"
#include "core/public/call.h"
#include "core/session/session.h"
#include "core/util/lane.h"

struct gb_turn;

enum gb_turn_stage {
    GB_TURN_NONE,
    GB_TURN_ACCEPTED,
    GB_TURN_QUEUED,     /* its work of the device is queued */
    GB_TURN_READY,      /* its bytes are complete */
    GB_TURN_COMMITTING, /* its transaction stands in the buffer's line */
    GB_TURN_ENDED
};

/* The relation of a request to one earlier turn. Zeroed: to none. The session's lock guards it. */
struct gb_after {
    struct gb_turn *on; /* NULL: none, or it has ended */
    LIST_ENTRY(gb_after) link;
    struct gb_core *core;
    uint64_t batch_number; /* as of the turn that follows */
    bool failed;           /* it was to write bytes, and has ended with error */
    struct gb_error *why;  /* its error, owned; NULL: memory was exhausted */
    int64_t id;            /* of the buffer, and of its generation, when the turn was committed */
    int64_t generation;

    /* While it waits: */
    bool waits;
    bool sees;         /* it ends early only if the turn's bytes can be seen then, or if that is of the same batch */
    const void *batch; /* as of the turn */
    bool late;         /* the wait for the end lasts until the memory has no other user */
    enum gb_turn_stage until;
    /* The wait ends. Called once, under the session's lock, before any later change of the buffer. NULL: no call. */
    void (*reached_locked)(struct gb_after *after);
    /* The turn has ended, whether it was waited for or not. NULL: no call. */
    void (*ended_locked)(struct gb_after *after, struct gb_session *session, const struct gb_name *buffer);
    void *ended_arg;
    void (*go)(struct gb_after *after); /* then, on a lane, without locks */
    void *owner;                        /* of the two functions */
    struct gb_task task;
};
LIST_HEAD(gb_after_list, gb_after);

struct gb_turn {
    struct gb_session *session; /* a reference; NULL: the turn was not taken */
    struct gb_buffer *buffer;   /* the place where it stands in line; NULL: not yet, or no more */
    TAILQ_ENTRY(gb_turn) at_buffer;
    TAILQ_ENTRY(gb_turn) in_session;
    int64_t stream; /* the stream's id */
    uint64_t number;
    enum gb_turn_stage stage;
    bool writes;           /* bytes; if it fails, later requests that build on them fail, too */
    const void *batch;     /* the batch that commits it with others; only compared; NULL: none */
    uint64_t batch_number; /* of the request that took turns for all operations of a batch; 0: none */
    bool skipped;          /* refused before it wrote: the others of its batch do as if it had not been there */
    bool related;          /* it was to follow another one */
    bool reads;            /* it is a reader's place: what follows it follows the turn before it, when it ends */
    bool links;            /* of a batch: it, or what it reads for, is a link, which reads when it is committed */
    bool refused;          /* by its transaction, which has not ended */
    const struct gb_error *error; /* why; the transaction's */
    int64_t id;                   /* of the buffer, and of its generation, once the transaction is valid */
    int64_t generation;
    atomic_bool ended;

    /* What later requests see from QUEUED on, if chains is set. Else they wait for the commit. */
    bool chains;
    struct gb_content *content; /* borrowed until the turn has ended */
    struct gb_text *stream_name;
    /* Writes what the buffer's record will be, when a later request asks for it first. */
    void (*tell_locked)(struct gb_turn *turn, struct gb_buffer_rec *ret);
    void *teller;
    struct gb_buffer_rec *rec; /* NULL: no request has asked */

    struct gb_after_list afters; /* of later requests */
    struct gb_after_list late;   /* of those that wait for its last use of the memory */
    struct gb_after after;       /* of this request to the earlier write of the buffer */
    struct gb_after source;      /* and to that of the buffer that it copies from */

    /* The place in the source's line, of a copy whose source is on disk alone: later writes of the source wait until
     * the copy holds its bytes. NULL: none was needed. */
    struct gb_turn *reader;
};

/* Makes a turn that stands in no line. Returns NULL if memory is exhausted. */
struct gb_turn *gb_turn_new(void);

/* Takes the turn's place behind all earlier ones. Sets turn->after, and turn->source, which is to a write, by the name
 * of the source unless that is NULL. For a batch the caller has set links and the batch's number. stream is in use.
 * Returns 0, or -1 if memory is exhausted. The session's lock is held, as in all functions named _locked. */
int gb_turn_take_locked(struct gb_session *session, struct gb_turn *turn, const struct gb_name *buffer,
                        const struct gb_name *source, const struct gb_core_stream *stream, struct gb_error *err);

/* Takes a turn for a call unless turn was taken before; source as above. Returns it, or NULL with err. */
struct gb_turn *gb_turn_of_call(struct gb_session *session, struct gb_turn *turn, const struct gb_name *buffer,
                                const struct gb_name *source, const struct gb_name *stream, struct gb_error *err);

/* The turn that the batch of a call has taken for it; the caller's from now on. NULL: none. */
struct gb_turn *gb_call_take_turn(struct gb_call *call);

/* The turn is further. Stages only rise. */
void gb_turn_stage_locked(struct gb_turn *turn, enum gb_turn_stage stage);

/* The bytes of the source are held: its later writes need not wait any more. */
void gb_turn_read_locked(struct gb_turn *turn);

/* Later requests may build on content, which is to be the buffer's. tell_locked as above. */
void gb_turn_chain_locked(struct gb_turn *turn, struct gb_content *content, struct gb_core_stream *stream,
                          void (*tell_locked)(struct gb_turn *turn, struct gb_buffer_rec *ret), void *teller);

/* What the buffer's record will be, of a turn that chains. NULL if memory is exhausted. */
const struct gb_buffer_rec *gb_turn_rec_locked(struct gb_turn *turn);

/* The turn was committed (error NULL) or has failed, and leaves the line. A turn that has ended already is accepted. */
void gb_turn_end_locked(struct gb_turn *turn, const struct gb_error *error);

/* As above, without the lock. NULL is accepted. */
void gb_turn_end(struct gb_turn *turn, const struct gb_error *error);

/* Sets after to the latest turn of that buffer before a request that is accepted now on stream. */
void gb_after_find_locked(struct gb_session *session, const struct gb_name *buffer, const struct gb_core_stream *stream,
                          struct gb_after *after);

/* The same, for a request that only reads: the latest turn that is no reader's place. */
void gb_after_find_write_locked(struct gb_session *session, const struct gb_name *buffer,
                                const struct gb_core_stream *stream, struct gb_after *after);

/* Returns true if the request has to wait: go follows. False: after it has been reached, and reached_locked was called.
 * The caller has set sees, late, until, reached_locked, go and owner. */
bool gb_after_wait_locked(struct gb_after *after);

/* Frees what the relation holds, when it has been left or its turn has ended. */
void gb_after_done(struct gb_after *after);

/* Ends the relation. Returns true if it waited, so that go does not run. */
bool gb_after_leave_locked(struct gb_after *after);

/* Ends the wait, and returns as above. The relation stays: what follows the request's own turn follows the earlier one
 * when the request has failed. */
bool gb_after_stop_locked(struct gb_after *after);

/* The buffer of that name as the request sees it: as the earlier turn will leave it, or as it is. In the first case
 * *seen is filled in and returned, which borrows what it holds. after may be NULL. Returns NULL with err, which may
 * be NULL, if it does not exist. */
struct gb_buffer *gb_after_see_locked(struct gb_session *session, const struct gb_name *name,
                                      const struct gb_after *after, struct gb_buffer *seen, struct gb_error *err);

/* Whether the earlier turn still stands and is seen. */
bool gb_after_chained(const struct gb_after *after);

/* Returns 0; -1 with DEPENDENCY_FAILED if the earlier turn has failed. */
int gb_after_check_locked(const struct gb_after *after, struct gb_error *err);

/* Whether the buffer is what the earlier turn left, which has been committed or is just being so. */
bool gb_after_left_locked(const struct gb_after *after, const struct gb_buffer *buffer);

#endif
