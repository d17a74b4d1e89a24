/* The keeper and the daemon's end of its socket: what is handed over stays, whatever becomes of the daemon; and a peer
 * that hangs, lies or is of another version loses nothing but its connection. This program is the keeper as well. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gb_test.h"
#include "keeper/keeper.h"

static char dir[64];
static struct gb_keeper *keeper;

static struct gb_keeper *open_keeper(unsigned keep_for_s) {
    const struct gb_keeper_config config = {dir, keep_for_s};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_keeper *k = NULL;

    ck_assert_msg(gb_keeper_open(&config, &k, &err) == 0, "%s", err.detail);
    return k;
}

static struct gb_keeper_stat stat_of(struct gb_keeper *k) {
    struct gb_keeper_stat stat;

    gb_keeper_stat(k, &stat);
    return stat;
}

static void setup(void) {
    snprintf(dir, sizeof(dir), "/tmp/gb-keeper-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    keeper = open_keeper(0);
}

/* It is a child of this process here, which the kernel keeps until it is waited for. */
static void end_process(pid_t pid) {
    (void)kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void teardown(void) {
    pid_t pid = stat_of(keeper).pid;
    char path[96];

    gb_keeper_close(keeper);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    snprintf(path, sizeof(path), "%s/%s", dir, GB_KEEPER_SOCKET);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static int memory(const char *text) {
    int fd = memfd_create("test", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static void put(struct gb_keeper *k, uint64_t id, const char *text) {
    int fd = memory(text);

    ck_assert_int_eq(gb_keeper_put(k, id, fd, NULL), 0);
    close(fd);
}

struct listed {
    unsigned count;
    uint64_t ids[64];
    char text[64][8];
};

static int take(void *arg, uint64_t id, int fd) {
    struct listed *all = arg;

    all->ids[all->count] = id;
    ck_assert_int_ge(pread(fd, all->text[all->count], 7, 0), 0);
    all->count++;
    close(fd);
    return 0;
}

static struct listed list(struct gb_keeper *k) {
    struct gb_error err = GB_ERROR_INIT;
    struct listed all = {.count = 0};

    ck_assert_msg(gb_keeper_list(k, take, &all, &err) == 0, "%s", err.detail);
    return all;
}

START_TEST(it_gives_back_what_it_was_given) {
    struct listed all;

    put(keeper, 7, "seven");
    put(keeper, 2, "two");
    put(keeper, 5, "five");
    put(keeper, 2, "other");
    ck_assert_int_eq(gb_keeper_drop(keeper, 5, NULL), 0);
    ck_assert_int_eq(gb_keeper_drop(keeper, 99, NULL), 0);
    all = list(keeper);
    ck_assert_uint_eq(all.count, 2);
    ck_assert_uint_eq(all.ids[0], 2);
    ck_assert_str_eq(all.text[0], "other");
    ck_assert_uint_eq(all.ids[1], 7);
    ck_assert_str_eq(all.text[1], "seven");
    ck_assert_uint_eq(stat_of(keeper).kept, 2);
}
END_TEST

START_TEST(it_keeps_for_the_next_daemon) {
    pid_t pid = stat_of(keeper).pid;
    struct listed all;

    put(keeper, 3, "three");
    gb_keeper_close(keeper); /* as when the process is killed: what was sent is read all the same */
    keeper = open_keeper(0);
    ck_assert_int_eq(stat_of(keeper).pid, pid);
    all = list(keeper);
    ck_assert_uint_eq(all.count, 1);
    ck_assert_str_eq(all.text[0], "three");
}
END_TEST

START_TEST(it_ends_when_it_has_nothing_to_keep) {
    pid_t pid = stat_of(keeper).pid;

    put(keeper, 3, "three");
    ck_assert_int_eq(gb_keeper_drop(keeper, 3, NULL), 0);
    gb_keeper_close(keeper);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    keeper = open_keeper(0);
}
END_TEST

START_TEST(it_ends_after_its_time) {
    pid_t pid;

    gb_keeper_close(keeper);
    keeper = open_keeper(1);
    pid = stat_of(keeper).pid;
    put(keeper, 3, "three");
    gb_keeper_close(keeper);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    keeper = open_keeper(0);
    ck_assert_uint_eq(list(keeper).count, 0);
}
END_TEST

START_TEST(a_second_daemon_is_turned_away) {
    const struct gb_keeper_config config = {dir, 0};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_keeper *other = NULL;

    put(keeper, 3, "three");
    ck_assert_int_eq(gb_keeper_open(&config, &other, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "another daemon"));
    ck_assert_uint_eq(list(keeper).count, 1);
}
END_TEST

START_TEST(one_that_hangs_is_replaced) {
    pid_t pid = stat_of(keeper).pid;

    put(keeper, 3, "three");
    ck_assert_uint_eq(list(keeper).count, 1);
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    gb_keeper_close(keeper);
    keeper = open_keeper(0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_ne(stat_of(keeper).pid, pid);
    ck_assert_uint_eq(list(keeper).count, 0);
}
END_TEST

START_TEST(one_that_reads_nothing_counts_as_gone) {
    struct gb_error err = GB_ERROR_INIT;
    int fd = memory("x");
    uint64_t id = 1;

    ck_assert_int_eq(kill(stat_of(keeper).pid, SIGSTOP), 0);
    while (gb_keeper_put(keeper, id, fd, &err) == 0)
        id++;
    close(fd);
    ck_assert_int_gt((int)id, 10);
    ck_assert_ptr_nonnull(strstr(err.detail, "gone"));
    ck_assert_int_eq(gb_keeper_drop(keeper, 1, NULL), -1);
    ck_assert(!stat_of(keeper).alive);
}
END_TEST

START_TEST(one_that_was_killed_is_missed) {
    struct gb_error err = GB_ERROR_INIT;
    int fd = memory("x");

    put(keeper, 3, "three");
    end_process(stat_of(keeper).pid);
    ck_assert_int_eq(gb_keeper_put(keeper, 4, fd, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INTERNAL);
    ck_assert_int_eq(gb_keeper_list(keeper, take, NULL, NULL), -1);
    ck_assert(!stat_of(keeper).alive);
    close(fd);
}
END_TEST

START_TEST(what_it_has_no_room_for_is_refused) {
    struct rlimit few = {16, 16};
    unsigned kept;
    uint64_t id;

    ck_assert_int_eq(prlimit(stat_of(keeper).pid, RLIMIT_NOFILE, &few, NULL), 0);
    for (id = 1; id <= 20; id++)
        put(keeper, id, "x");
    kept = list(keeper).count;
    ck_assert(kept > 0 && kept <= 11); /* beside three standard descriptors, two sockets and what check has open */
    ck_assert_uint_eq(stat_of(keeper).refused, 20 - kept);
    ck_assert_uint_eq(stat_of(keeper).kept, kept);
}
END_TEST

/* --- other peers -------------------------------------------------------------------------------------------------- */

static int reach(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ck_assert_int_lt(snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", dir, GB_KEEPER_SOCKET),
                     (int)sizeof(at.sun_path));
    ck_assert_int_eq(connect(s, (const struct sockaddr *)&at, sizeof(at)), 0);
    return s;
}

static void is_ended(int s) {
    char byte;

    ck_assert_int_le(recv(s, &byte, 1, 0), 0);
    close(s);
}

START_TEST(a_peer_that_says_what_it_may_not_is_left) {
    static const struct gb_keeper_message wrong[] = {
        {GB_KEEPER_MAGIC, GB_KEEPER_VERSION, GB_KEEPER_LIST, 0},      /* no greeting */
        {GB_KEEPER_MAGIC, GB_KEEPER_VERSION + 1, GB_KEEPER_HELLO, 1}, /* another version */
        {1, GB_KEEPER_VERSION, GB_KEEPER_HELLO, 1},
    };
    size_t i;
    int s;

    put(keeper, 3, "three");
    gb_keeper_close(keeper);
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        s = reach();
        ck_assert_int_eq(send(s, &wrong[i], sizeof(wrong[i]), 0), sizeof(wrong[i]));
        is_ended(s);
    }
    s = reach();
    ck_assert_int_eq(send(s, wrong, 3, 0), 3);
    is_ended(s);
    s = reach();
    ck_assert_int_eq(gb_keeper_send(s, GB_KEEPER_HELLO, 60, -1, 0), 0);
    ck_assert_int_eq(gb_keeper_send(s, (enum gb_keeper_op)77, 0, -1, 0), 0);
    while (recv(s, &(struct gb_keeper_message){0}, sizeof(wrong[0]), 0) > 0)
        continue;
    close(s);
    keeper = open_keeper(0);
    ck_assert_uint_eq(list(keeper).count, 1);
}
END_TEST

START_TEST(a_put_without_a_descriptor_or_number_is_refused) {
    struct gb_keeper_message m;
    bool cut;
    int fd;
    int s;

    put(keeper, 3, "three");
    gb_keeper_close(keeper);
    s = reach();
    ck_assert_int_eq(gb_keeper_send(s, GB_KEEPER_HELLO, 60, -1, 0), 0);
    ck_assert_int_eq(gb_keeper_receive(s, &m, &fd, &cut, 0), 1);
    ck_assert_int_eq(m.op, GB_KEEPER_HELLO);
    ck_assert_uint_eq(m.id, 1);
    ck_assert_int_eq(gb_keeper_send(s, GB_KEEPER_PUT, 9, -1, 0), 0);
    ck_assert_int_eq(gb_keeper_receive(s, &m, &fd, &cut, 0), 1);
    ck_assert_int_eq(m.op, GB_KEEPER_REFUSED);
    ck_assert_uint_eq(m.id, 9);
    ck_assert_int_eq(gb_keeper_send(s, GB_KEEPER_PUT, 0, s, 0), 0);
    ck_assert_int_eq(gb_keeper_receive(s, &m, &fd, &cut, 0), 1);
    ck_assert_int_eq(m.op, GB_KEEPER_REFUSED);
    close(s);
    keeper = open_keeper(0);
    ck_assert_uint_eq(list(keeper).count, 1);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_said_so) {
    char path[200];
    const struct gb_keeper_config config = {path, 0};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_keeper *k = NULL;

    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    ck_assert_int_eq(gb_keeper_open(&config, &k, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.detail, "longer than"));
}
END_TEST

int main(int argc, char **argv) {
    int status = gb_keeper_main(argc, argv);
    Suite *suite;
    TCase *tests;

    if (status >= 0)
        return status;
    suite = suite_create("keeper");
    tests = tcase_create("keeper");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, it_gives_back_what_it_was_given);
    tcase_add_test(tests, it_keeps_for_the_next_daemon);
    tcase_add_test(tests, it_ends_when_it_has_nothing_to_keep);
    tcase_add_test(tests, it_ends_after_its_time);
    tcase_add_test(tests, a_second_daemon_is_turned_away);
    tcase_add_test(tests, one_that_hangs_is_replaced);
    tcase_add_test(tests, one_that_reads_nothing_counts_as_gone);
    tcase_add_test(tests, one_that_was_killed_is_missed);
    tcase_add_test(tests, what_it_has_no_room_for_is_refused);
    tcase_add_test(tests, a_peer_that_says_what_it_may_not_is_left);
    tcase_add_test(tests, a_put_without_a_descriptor_or_number_is_refused);
    tcase_add_test(tests, a_path_that_is_too_long_is_said_so);
    suite_add_tcase(suite, tests);
    return gb_test_run(suite);
}
