/* Reading and sending over a connection that is open, with records that come and leave in parts. */
#include <errno.h>
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "tls_pair.h"

#define MIB (1u << 20)
#define RECORD 16384u

static struct gb_tls_files files;
static struct gb_tls_context *context;
static struct gb_tls_pair_of p;
static char room[2 * MIB];

static void open_with(const struct gb_tls_client *client) {
    static const struct gb_tls_wish server = {.dn = "CN=server", .dns = "localhost", .from_days = -1, .to_days = 10};
    char path[2][GB_TLS_PATH];
    struct gb_tls_pair_files pair;
    struct gb_tls_config config = {.pairs = &pair, .pair_count = 1};
    struct gb_error err = GB_ERROR_INIT;

    gb_tls_files_init(&files);
    gb_tls_issue(&files, "server", &server, &files.root, NULL);
    pair.cert = gb_tls_path(&files, "server.pem", path[0]);
    pair.key = gb_tls_path(&files, "server.key", path[1]);
    gb_assert_ok(gb_tls_context_new(&config, &context, &err), err);
    gb_tls_pair_open(&p, context, client);
    ck_assert_int_eq((int)gb_tls_client_reads(&p, room, 1), GNUTLS_E_AGAIN); /* tickets */
}

/* _i: 0 for TLS 1.2, 1 for TLS 1.3. */
static const char *const VERSIONS[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.3"};

static void open_version(int i) {
    open_with(&(struct gb_tls_client){.priority = VERSIONS[i]});
}

static void finish(void) {
    gb_tls_pair_done(&p);
    gb_tls_context_unref(context);
    gb_tls_files_done(&files);
}

static void nothing_yet(void) {
    errno = 0;
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), -1);
    ck_assert_int_eq(errno, EAGAIN);
}

static void broken(void) {
    int i;

    for (i = 0; i < 2; i++) { /* and stays so */
        errno = 0;
        ck_assert_int_eq(gb_tls_recv(p.server, room, 1), -1);
        ck_assert_int_eq(errno, ECONNRESET);
        ck_assert_int_eq(gb_tls_send(p.server, "x", 1, false), -1);
        ck_assert_int_eq(errno, ECONNRESET);
    }
    ck_assert(gb_tls_pending(p.server)); /* no event will say so */
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A record is read when its last byte is there. */
START_TEST(a_record_byte_by_byte) {
    open_version(_i);
    gb_tls_client_sends(&p, 0, 300, 300);
    while (p.len > 1) {
        gb_tls_arrive(&p, 1);
        nothing_yet();
        ck_assert(!gb_tls_pending(p.server));
    }
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, 100), 100);
    ck_assert(gb_tls_pending(p.server));
    ck_assert_int_eq(gb_tls_recv(p.server, room + 100, sizeof(room)), 200);
    ck_assert(gb_tls_bytes_are(room, 0, 300));
    ck_assert(!gb_tls_pending(p.server));
    nothing_yet();
    finish();
}
END_TEST

/* Some tens of bytes arrive at a time, wherever records begin and end. */
START_TEST(records_in_any_parts) {
    size_t total = 0;
    size_t step;

    open_version(_i);
    gb_tls_client_sends(&p, 0, 3 * RECORD + 5, RECORD);
    gb_tls_client_sends(&p, 3 * RECORD + 5, 1000, 7);
    for (step = 1; p.len > 0; step = step * 7 % 4001) {
        ssize_t n;

        gb_tls_arrive(&p, step < p.len ? step : p.len);
        do {
            n = gb_tls_recv(p.server, room + total, sizeof(room) - total);
            total += n > 0 ? (size_t)n : 0;
        } while (n > 0);
        ck_assert_int_eq(errno, EAGAIN);
        ck_assert(!gb_tls_pending(p.server));
    }
    ck_assert_uint_eq(total, 3 * RECORD + 1005);
    ck_assert(gb_tls_bytes_are(room, 0, total));
    finish();
}
END_TEST

/* One read takes what is there of all records, but no more than it has room for. */
START_TEST(several_records_at_once) {
    open_version(_i);
    gb_tls_client_sends(&p, 0, 10000, 1000);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, 2500), 2500);
    ck_assert(gb_tls_pending(p.server));
    ck_assert_int_eq(gb_tls_recv(p.server, room + 2500, sizeof(room)), 7500);
    ck_assert(gb_tls_bytes_are(room, 0, 10000));
    nothing_yet();
    finish();
}
END_TEST

/* The socket is not asked again before it has had an event. */
START_TEST(an_empty_socket_is_left_alone) {
    open_version(_i);
    nothing_yet();
    gb_tls_client_sends(&p, 0, 10, 10);
    ck_assert_int_eq(send(p.other, p.wire, p.len, 0), (ssize_t)p.len);
    nothing_yet();
    gb_tls_woken(p.server);
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 10);
    finish();
}
END_TEST

START_TEST(peeking) {
    open_version(_i);
    errno = 0;
    ck_assert_int_eq(gb_tls_peek(p.server, room, 10), -1);
    ck_assert_int_eq(errno, EAGAIN);
    gb_tls_client_sends(&p, 0, 300, 100);
    gb_tls_arrive(&p, p.len - 1);
    ck_assert_int_eq(gb_tls_peek(p.server, room, 50), 50);
    ck_assert_int_eq(gb_tls_peek(p.server, room, 150), 150);
    ck_assert_int_eq(gb_tls_peek(p.server, room, 1000), 200); /* the last record is not whole */
    ck_assert(gb_tls_bytes_are(room, 0, 200));
    ck_assert_int_eq(gb_tls_recv(p.server, room, 120), 120);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_peek(p.server, room + 120, 1000), 180);
    ck_assert(gb_tls_bytes_are(room, 0, 300));
    memset(room, 0, 300);
    ck_assert_int_eq(gb_tls_recv(p.server, room, 1000), 180);
    ck_assert(gb_tls_bytes_are(room, 120, 180));
    ck_assert(!gb_tls_pending(p.server));
    finish();
}
END_TEST

/* What was read already comes first, with what was peeked at and what is in the socket behind it. */
START_TEST(bytes_that_are_given_back) {
    open_version(_i);
    gb_tls_client_sends(&p, 0, 300, 100);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, 80), 80);
    ck_assert_int_eq(gb_tls_peek(p.server, room + 80, 50), 50);
    ck_assert_int_eq(gb_tls_unread(p.server, room, 0), 0);
    ck_assert_int_eq(gb_tls_unread(p.server, room + 40, 40), 0);
    ck_assert_int_eq(gb_tls_unread(p.server, room, 40), 0);
    ck_assert(gb_tls_pending(p.server));
    memset(room, 0, 300);
    ck_assert_int_eq(gb_tls_recv(p.server, room, 10), 10);
    ck_assert_int_eq(gb_tls_recv(p.server, room + 10, 1000), 290);
    ck_assert(gb_tls_bytes_are(room, 0, 300));
    finish();
}
END_TEST

/* A client that sends one byte a record does not hold its reader up for as many records as the reader has room for. */
START_TEST(many_small_records) {
    size_t total = 0;
    ssize_t n;

    open_version(_i);
    gb_tls_client_sends(&p, 0, 3000, 1);
    gb_tls_arrive_all(&p);
    n = gb_tls_recv(p.server, room, sizeof(room));
    ck_assert_int_ge(n, 64);
    ck_assert_int_lt(n, 1000);
    for (total = (size_t)n; total < 3000; total += (size_t)n) {
        n = gb_tls_recv(p.server, room + total, sizeof(room) - total);
        ck_assert_int_gt(n, 0);
    }
    ck_assert(gb_tls_bytes_are(room, 0, total));
    nothing_yet();
    finish();
}
END_TEST

/* Records with nothing but padding bring no bytes, and are no end. */
START_TEST(empty_records) {
    open_version(1);
    ck_assert_int_eq((int)gnutls_record_send2(p.client, "", 0, 100, 0), 0);
    gb_tls_arrive_all(&p);
    nothing_yet();
    ck_assert_int_eq((int)gnutls_record_send2(p.client, "", 0, 100, 0), 0);
    gb_tls_client_sends(&p, 0, 10, 10);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 10);
    nothing_yet();
    finish();
}
END_TEST

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The bytes before it are read; the end comes without an event of its own. */
START_TEST(the_client_closes_its_side) {
    open_version(_i);
    gb_tls_client_sends(&p, 0, 100, 100);
    ck_assert_int_eq(gnutls_bye(p.client, GNUTLS_SHUT_WR), 0);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 100);
    ck_assert(gb_tls_pending(p.server));
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 0);
    ck_assert_int_eq(gb_tls_peek(p.server, room, 10), 0);
    ck_assert(gb_tls_pending(p.server));
    ck_assert_int_eq(gb_tls_send(p.server, "answer", 6, false), 6);
    gb_tls_end(p.server);
    ck_assert_int_eq(gb_tls_client_reads(&p, room, sizeof(room)), 6);
    ck_assert_int_eq(gb_tls_client_reads(&p, room, sizeof(room)), 0);
    finish();
}
END_TEST

/* As over plain TCP, an end without a word is an end. */
START_TEST(the_socket_ends) {
    open_version(_i);
    gb_tls_client_sends(&p, 0, 100, 100);
    gb_tls_arrive(&p, p.len - (_i ? 0 : 1));
    shutdown(p.other, SHUT_WR);
    gb_tls_woken(p.server);
    if (_i)
        ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 100);
    else
        nothing_yet();
    gb_tls_woken(p.server); /* the socket had been read as far as there were bytes */
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 0);
    ck_assert_int_eq(gb_tls_send(p.server, "answer", 6, false), 6);
    finish();
}
END_TEST

START_TEST(bytes_that_are_no_record) {
    open_version(_i);
    gb_tls_client_sends(&p, 0, 100, 100);
    p.wire[50] ^= 1;
    gb_tls_arrive_all(&p);
    broken();
    ck_assert_int_eq((int)gb_tls_client_reads(&p, room, 1), GNUTLS_E_FATAL_ALERT_RECEIVED);
    ck_assert_int_eq(p.alert, GNUTLS_A_BAD_RECORD_MAC);
    finish();
}
END_TEST

START_TEST(warnings_without_end) {
    int i;

    open_version(0);
    for (i = 0; i < 3; i++)
        ck_assert_int_eq(gnutls_alert_send(p.client, GNUTLS_AL_WARNING, GNUTLS_A_USER_CANCELED), 0);
    gb_tls_client_sends(&p, 0, 10, 10);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 10);
    for (i = 0; i < 100; i++)
        ck_assert_int_eq(gnutls_alert_send(p.client, GNUTLS_AL_WARNING, GNUTLS_A_USER_CANCELED), 0);
    gb_tls_arrive_all(&p);
    broken();
    finish();
}
END_TEST

/* --- keys --------------------------------------------------------------------------------------------------------- */

START_TEST(no_negotiation_anew) {
    open_version(0);
    gb_tls_client_sends(&p, 0, 10, 10);
    ck_assert_int_eq(gnutls_handshake(p.client), GNUTLS_E_AGAIN);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 10);
    broken();
    ck_assert_int_lt(gnutls_handshake(p.client), 0);
    ck_assert_int_eq((int)gnutls_alert_get(p.client), GNUTLS_A_NO_RENEGOTIATION);
    finish();
}
END_TEST

/* _i: whether the server is to take a new key as well. */
START_TEST(new_keys) {
    size_t i;

    open_version(1);
    for (i = 0; i < 4; i++) {
        gb_tls_client_sends(&p, i * 100, 50, 20);
        ck_assert_int_eq(gnutls_session_key_update(p.client, _i ? GNUTLS_KU_PEER : 0), 0);
        gb_tls_client_sends(&p, i * 100 + 50, 50, 20);
        gb_tls_arrive_all(&p);
        ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 100);
        ck_assert(gb_tls_bytes_are(room, i * 100, 100));
        ck_assert_int_eq(gb_tls_send(p.server, room, 100, false), 100);
        ck_assert_int_eq(gb_tls_client_reads(&p, room + 1000, 1000), 100);
        ck_assert(gb_tls_bytes_are(room + 1000, i * 100, 100));
    }
    finish();
}
END_TEST

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Sends byte `from` and all that follow, as far as the socket takes them. Returns how many. */
static size_t fill(size_t from, size_t to) {
    static char bytes[MIB];
    size_t sent = 0;

    while (from + sent < to) {
        size_t n = to - from - sent < sizeof(bytes) ? to - from - sent : sizeof(bytes);
        ssize_t r;
        size_t i;

        for (i = 0; i < n; i++)
            bytes[i] = (char)gb_tls_byte(from + sent + i);
        errno = 0;
        r = gb_tls_send(p.server, bytes, n, false);
        if (r < 0) {
            ck_assert_int_eq(errno, EAGAIN);
            break;
        }
        sent += (size_t)r;
    }
    return sent;
}

/* What the client has now: its bytes are those from `from` on. */
static size_t drain(size_t from) {
    size_t total = 0;
    ssize_t n;

    while ((n = gb_tls_client_reads(&p, room, sizeof(room))) > 0) {
        ck_assert(gb_tls_bytes_are(room, from + total, (size_t)n));
        total += (size_t)n;
    }
    ck_assert_msg(n == GNUTLS_E_AGAIN, "%s", gnutls_strerror((int)n));
    return total;
}

static void narrow(void) {
    int bytes = 10000;

    ck_assert_int_eq(setsockopt(p.fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

static void send_all(size_t total) {
    size_t sent = 0;
    size_t got = 0;

    while (got < total) {
        sent += fill(sent, total);
        got += drain(got);
    }
    ck_assert_uint_eq(sent, total);
    ck_assert_uint_eq(got, total);
}

/* Records leave in parts, because the socket has room for less than one. */
START_TEST(a_socket_that_is_full) {
    open_version(_i);
    narrow();
    send_all(3 * MIB + 11);
    finish();
}
END_TEST

/* A client may ask for records that are shorter than 16 KiB. */
START_TEST(short_records) {
    static const size_t limits[] = {512, 1024, 4096, 16384};
    size_t i;

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        open_with(&(struct gb_tls_client){.priority = VERSIONS[_i], .record_limit = limits[i]});
        narrow();
        send_all(MIB / 4 + 3);
        finish();
    }
}
END_TEST

/* The client's key changes, and asks for the server's, while a record of the server has left in part. */
START_TEST(new_keys_while_the_socket_is_full) {
    size_t total = MIB;
    size_t sent;
    size_t got;

    open_version(1);
    narrow();
    sent = fill(0, total);
    ck_assert_uint_lt(sent, total);
    ck_assert_int_eq(gnutls_session_key_update(p.client, GNUTLS_KU_PEER), 0);
    gb_tls_client_sends(&p, 0, 10, 10);
    gb_tls_arrive_all(&p);
    ck_assert_int_eq(gb_tls_recv(p.server, room, sizeof(room)), 10);
    for (got = drain(0); got < total; got += drain(got))
        sent += fill(sent, total);
    ck_assert_uint_eq(sent, total);
    finish();
}
END_TEST

/* Bytes of the queue leave before those that are sent, also if a record of others has left in part. */
START_TEST(the_queue) {
    static char bytes[5 * RECORD];
    size_t sent;
    size_t got;
    size_t i;

    open_version(_i);
    for (i = 0; i < 100; i++)
        bytes[i] = (char)gb_tls_byte(i);
    gb_tls_queue(p.server, bytes, 30);
    gb_tls_queue(p.server, bytes + 30, 0);
    gb_tls_queue(p.server, bytes + 30, 70);
    ck_assert_int_eq(gb_tls_flush(p.server), 0);
    ck_assert_int_eq(gb_tls_flush(p.server), 0);
    ck_assert_uint_eq(drain(0), 100);
    narrow();
    sent = 100 + fill(100, MIB);
    for (i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)gb_tls_byte(sent + i);
    gb_tls_queue(p.server, bytes, sizeof(bytes)); /* what the caller would have sent next */
    errno = 0;
    ck_assert_int_eq(gb_tls_flush(p.server), -1);
    ck_assert_int_eq(errno, EAGAIN);
    gb_tls_end(p.server); /* there is more to come: no end */
    sent += sizeof(bytes);
    for (got = 100 + drain(100); got < MIB; got += drain(got))
        sent += fill(sent, MIB);
    ck_assert_uint_eq(sent, MIB);
    finish();
}
END_TEST

/* A head waits for what follows, and leaves with it; also where records are shorter than that. */
START_TEST(heads_and_what_follows) {
    static const size_t heads[] = {1, 400, 3000, 4096};
    static char bytes[4096];
    size_t got = 0;
    size_t sent = 0;
    size_t i;
    size_t k;

    open_with(&(struct gb_tls_client){.priority = VERSIONS[_i % 2], .record_limit = _i < 2 ? 0 : 512});
    narrow();
    for (k = 0; k < sizeof(heads) / sizeof(heads[0]); k++) {
        size_t end = sent + heads[k] + 70000;

        for (i = 0; i < heads[k]; i++)
            bytes[i] = (char)gb_tls_byte(sent + i);
        ck_assert_int_eq(gb_tls_send(p.server, bytes, heads[k], true), (ssize_t)heads[k]);
        ck_assert_uint_eq(drain(got), 0);
        for (sent += heads[k]; got < end; got += drain(got))
            sent += fill(sent, end);
        ck_assert_uint_eq(sent, end);
    }
    finish();
}
END_TEST

START_TEST(the_client_is_gone) {
    open_version(_i);
    close(p.other);
    p.other = -1;
    gb_tls_woken(p.server);
    while (gb_tls_send(p.server, room, sizeof(room), false) > 0)
        ;
    ck_assert_int_eq(errno, EPIPE);
    gb_tls_end(p.server);
    finish();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("TLS");

    gb_test_add_loop(suite, "bytes", a_record_byte_by_byte, 60, 2);
    gb_test_add_loop(suite, "parts", records_in_any_parts, 60, 2);
    gb_test_add_loop(suite, "several", several_records_at_once, 60, 2);
    gb_test_add_loop(suite, "events", an_empty_socket_is_left_alone, 60, 2);
    gb_test_add_loop(suite, "peek", peeking, 60, 2);
    gb_test_add_loop(suite, "unread", bytes_that_are_given_back, 60, 2);
    gb_test_add_loop(suite, "small", many_small_records, 60, 2);
    gb_test_add(suite, "empty", empty_records, 60);
    gb_test_add_loop(suite, "close", the_client_closes_its_side, 60, 2);
    gb_test_add_loop(suite, "end", the_socket_ends, 60, 2);
    gb_test_add_loop(suite, "garbage", bytes_that_are_no_record, 60, 2);
    gb_test_add(suite, "warnings", warnings_without_end, 60);
    gb_test_add(suite, "anew", no_negotiation_anew, 60);
    gb_test_add_loop(suite, "keys", new_keys, 60, 2);
    gb_test_add_loop(suite, "full", a_socket_that_is_full, 60, 2);
    gb_test_add_loop(suite, "limit", short_records, 60, 2);
    gb_test_add(suite, "keys-full", new_keys_while_the_socket_is_full, 60);
    gb_test_add_loop(suite, "queue", the_queue, 60, 2);
    gb_test_add_loop(suite, "heads", heads_and_what_follows, 60, 4);
    gb_test_add_loop(suite, "gone", the_client_is_gone, 60, 2);
    return gb_test_run(suite);
}
