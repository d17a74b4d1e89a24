#include "http/transfer/pace.h"

#include "base/clock.h"
#include "http/exchange/client.h"
#include "http/exchange/step.h"

/* Worth a visit. */
#define LEAST_BYTES 4096u

static void begin(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->paced)
        return;
    t->paced = true;
    atomic_fetch_add(&t->ex->client->pausing, 1);
    atomic_fetch_add(&loop->server->limits.pausing, 1);
    gb_limits_note(&loop->server->limits, GB_HTTP_LIMIT_BYTES);
}

void gb_pace_end(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (!t->paced)
        return;
    t->paced = false;
    atomic_fetch_sub(&t->ex->client->pausing, 1);
    atomic_fetch_sub(&loop->server->limits.pausing, 1);
}

/* Nothing is held meanwhile that other clients may need. */
static void let_go(struct gb_http_transfer *t) {
    struct gb_exchange *ex = t->ex;

    if (ex->phase == GB_PHASE_BODY && ex->req.sink) {
        gb_exchange_room(ex, false);
        if (ex->req.sink->pause)
            ex->req.sink->pause(ex->req.sink, true);
    }
    if (t->state == GB_HTTP_TRANSFER_SOURCE && ex->resp.source && ex->resp.source->pause)
        ex->resp.source->pause(ex->resp.source);
}

/* Not fewer bytes than are worth a visit, unless all that the rate permits in half a tick is less. */
static uint64_t least_of(struct gb_bucket_rate rate, uint64_t n, bool paced) {
    uint64_t least = rate.per_s / 20 + 1;

    if (paced && least > LEAST_BYTES)
        least = LEAST_BYTES;
    return least < n ? least : n;
}

/* What t may have now. Where others of its client wait already, t waits too, and each has its share at its visit. */
static uint64_t share_of(const struct gb_http_transfer *t, struct gb_bucket_rate rate, uint64_t n) {
    const struct gb_client *client = t->ex->client;
    unsigned waiting = atomic_load_explicit(&client->pausing, memory_order_relaxed);
    uint64_t left = gb_bucket_left(&client->bytes, rate, gb_clock_ns());
    uint64_t least = least_of(rate, n, t->paced);
    uint64_t share = waiting > 1 ? left / waiting : left;

    if (left < least || (waiting > 0 && !t->paced))
        return 0;
    return share > least ? share : least;
}

size_t gb_pace_bounded(struct gb_transfer_loop *loop, struct gb_http_transfer *t, size_t n) {
    struct gb_bucket_rate rate = gb_client_bytes(t->ex->client);
    uint64_t share;

    if (rate.per_s == 0)
        return n;
    share = share_of(t, rate, n);
    if (share > 0) {
        gb_pace_end(loop, t);
        return share < n ? (size_t)share : n;
    }
    begin(loop, t);
    let_go(t);
    gb_http_transfer_arm(loop, t, 0);
    return 0;
}

void gb_pace_paid(struct gb_http_transfer *t, size_t n) {
    struct gb_bucket_rate rate = gb_client_bytes(t->ex->client);

    if (rate.per_s == 0)
        return;
    gb_bucket_charge(&t->ex->client->bytes, rate, n, gb_clock_ns());
    t->ex->paid_bytes += n;
}

void gb_pace_excuse(struct gb_http_transfer *t, uint64_t now_ns) {
    if (t->paced)
        gb_progress_excuse(&t->progress, now_ns);
}
