/* One range of the source: its bytes go from the socket into the memory or the slots of a part of the multipart
 * upload. A connection that breaks is made again, and the range goes on behind its last byte, maybe elsewhere. */
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pull/internal.h"

#define FAILURES_MAX 7 /* in a row */

static void wake(void *arg) {
    const struct gb_pull_part *part = arg;

    (void)eventfd_write(part->wake, 1); /* a counter that is full is readable as well */
}

/* For the wake of the upload. False: the attempt is to end. */
static bool wait_for_wake(struct gb_pull_part *part) {
    eventfd_t n;

    if (gb_pull_poll(part->pull, part->wake, POLLIN, -1) < 0)
        return false;
    (void)eventfd_read(part->wake, &n);
    return true;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome take(struct gb_pull_part *part, void *room, size_t n) {
    enum gb_pull_outcome outcome;
    size_t got;
    int wait_ms;

    outcome = gb_pull_conn_recv(part->conn, room, n, &got, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (got == 0) {
        gb_upload_pause(part->upload, false); /* which takes the room back */
        gb_pull_conn_mark(part->conn, part->bytes - part->got);
        return gb_pull_conn_wait(part->conn, POLLIN, GB_PULL_STALL_MS, &part->error);
    }
    part->got += got;
    part->received += got;
    if (gb_upload_fill(part->upload, got, &part->error) < 0)
        return GB_PULL_FAILED;
    wait_ms = gb_pulls_owe(part->pull, got);
    if (wait_ms == 0)
        return GB_PULL_OK;
    gb_upload_pause(part->upload, true); /* others may need the slot meanwhile */
    return gb_pull_poll(part->pull, -1, 0, wait_ms) == 0 ? GB_PULL_OK : GB_PULL_STOPPED;
}

/* All that is left of the range. */
static enum gb_pull_outcome receive(struct gb_pull_part *part) {
    enum gb_pull_outcome outcome = GB_PULL_OK;
    void *room;
    size_t n;
    int r;

    while (outcome == GB_PULL_OK && part->got < part->bytes) {
        if (gb_pull_ends(part->pull))
            return GB_PULL_STOPPED;
        r = gb_upload_room(part->upload, &room, &n, &part->error);
        if (r < 0)
            return GB_PULL_FAILED;
        if (r == 0)
            outcome = wait_for_wake(part) ? GB_PULL_OK : GB_PULL_STOPPED;
        else
            outcome = take(part, room, n < part->bytes - part->got ? n : (size_t)(part->bytes - part->got));
    }
    return outcome;
}

/* --- one connection ----------------------------------------------------------------------------------------------- */

static bool is_range(const struct gb_pull_part *part, const struct gb_pull_head *head) {
    uint64_t left = part->bytes - part->got;

    if (head->coded || !head->has_length || head->length != left)
        return false;
    if (head->status == 200)
        return part->at + part->got == 0 && left == part->pull->source.bytes;
    return head->status == 206 && head->has_range && head->first == part->at + part->got &&
           head->last == part->at + part->bytes - 1 && head->total == part->pull->source.bytes;
}

static enum gb_pull_outcome attempt(struct gb_pull_part *part, const struct gb_pull_place *place,
                                    unsigned *ret_retry_after_s) {
    struct gb_pull_ask ask = {.place = place,
                              .method = "GET",
                              .data = true,
                              .ranged = true,
                              .first = part->at + part->got,
                              .last = part->at + part->bytes - 1,
                              .if_match = place->tag};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;

    *ret_retry_after_s = 0;
    outcome = gb_pull_request(part->conn, &ask, &head, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    *ret_retry_after_s = head.retry_after_s;
    if (head.status != 200 && head.status != 206)
        return gb_pull_refusal(part->conn, &ask, &head, &part->error);
    if (strcmp(head.tag, place->tag) != 0) {
        gb_error_set(&part->error, GB_ERR_SOURCE_CHANGED, "the source %s answers with other bytes than those asked for",
                     part->conn->origin);
        return GB_PULL_CHANGED;
    }
    if (!is_range(part, &head)) {
        gb_error_set(&part->error, GB_ERR_SOURCE_REFUSED,
                     "the source %s answers with another range than the one asked for, or with a content coding",
                     part->conn->origin);
        return GB_PULL_FAILED;
    }
    return receive(part);
}

static enum gb_pull_outcome bring(struct gb_pull_part *part) {
    struct gb_pull_patience patience = {.most = FAILURES_MAX};
    const struct gb_pull_place *place;
    unsigned retry_after_s;
    enum gb_pull_outcome outcome;
    uint64_t before;

    for (;;) {
        before = part->got;
        place = atomic_load(&part->pull->place);
        outcome = attempt(part, place, &retry_after_s);
        if (outcome != GB_PULL_BROKEN && outcome != GB_PULL_CHANGED)
            return outcome;
        gb_pull_conn_close(part->conn);
        gb_upload_pause(part->upload, true);
        if (part->got > before)
            patience.failures = 0;
        outcome = gb_pull_leave(part->conn, place, outcome, &patience, &part->error);
        if (outcome != GB_PULL_OK && outcome != GB_PULL_BROKEN)
            return outcome;
        if (outcome == GB_PULL_BROKEN && !gb_pull_again(part->pull, &patience, retry_after_s))
            return patience.failures > patience.most + patience.more ? GB_PULL_FAILED : GB_PULL_STOPPED;
        part->error = GB_ERROR_INIT;
        part->resumed++;
    }
}

static enum gb_pull_outcome finish(struct gb_pull_part *part) {
    uint32_t crc;
    int r;

    if (gb_upload_end(part->upload, &part->error) < 0)
        return GB_PULL_FAILED;
    while ((r = gb_part_result(part->upload, &crc, NULL, &part->error)) == 0)
        if (!wait_for_wake(part))
            return GB_PULL_STOPPED;
    return r < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

void gb_pull_part_run(struct gb_pull_part *part) {
    struct gb_pull *pull = part->pull;
    struct gb_waker waker = {wake, part};

    part->outcome = GB_PULL_FAILED;
    part->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (part->wake < 0) {
        gb_error_set(&part->error, GB_ERR_SATURATED, "no descriptor is left for the pull; try again later");
    } else if (gb_multipart_part(pull->pulls->core, &pull->params.to.session, pull->multipart, part->at, part->bytes,
                                 false, waker, &part->upload, &part->error) == 0) {
        part->outcome = bring(part);
        if (part->outcome == GB_PULL_OK)
            part->outcome = finish(part);
        gb_upload_free(part->upload);
    }
    gb_pull_conn_close(part->conn);
    if (part->wake >= 0)
        close(part->wake);
    if (part->outcome != GB_PULL_OK) {
        atomic_store(&pull->halted, true);
        (void)eventfd_write(pull->halt, 1);
    }
}
