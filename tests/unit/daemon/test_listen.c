/* Listening sockets and the state directory: accepted and refused forms, and removal at the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/listen.h"
#include "daemon/state_dir.h"
#include "gb_test.h"

static struct gb_error err;
static struct gb_listeners listeners;
static const struct gb_socket_rights usual = {.mode = 0660, .gid = (gid_t)-1};
static char folder[] = "/tmp/gb-listen-XXXXXX";
static char path[64];

static void setup(void) {
    err = GB_ERROR_INIT;
    strcpy(folder, "/tmp/gb-listen-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
}

static void teardown(void) {
    gb_listen_done(&listeners, true);
    ck_assert_msg(rmdir(folder) == 0, "something is left in %s: %s", folder, strerror(errno));
}

static int connect_unix(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int rc;

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    rc = connect(fd, (struct sockaddr *)&a, sizeof a);
    close(fd);
    return rc;
}

static const struct {
    const char *spec;
    const char *begins; /* NULL: refused */
    bool beyond;
} specs[] = {
    {"127.0.0.1:0", "127.0.0.1:", false},
    {"localhost:0", "127.0.0.1:", false},
    {"127.9.9.9:0", "127.9.9.9:", false},
    {"[::1]:0", "[::1]:", false},
    {"[::ffff:127.0.0.1]:0", NULL, false}, /* IPv6 alone: the mapped address has its own form */
    {"0.0.0.0:0", "0.0.0.0:", true},
    {"[::]:0", "[::]:", true},
    {"", NULL, false},
    {":0", NULL, false},
    {"127.0.0.1", NULL, false},
    {"127.0.0.1:", NULL, false},
    {"127.0.0.1:65536", NULL, false},
    {"127.0.0.1:-1", NULL, false},
    {"127.0.0.1:+1", NULL, false},
    {"127.1:0", NULL, false},
    {"::1:0", NULL, false},
    {"[::1:0", NULL, false},
    {"[]:0", NULL, false},
    {"example.com:0", NULL, false},
    {"lan=127.0.0.1:0", "127.0.0.1:", false},
    {"lan=[::1]:0", "[::1]:", false},
    {"=127.0.0.1:0", NULL, false},
    {"l/n=127.0.0.1:0", NULL, false},
    {"lan=", NULL, false},
};

START_TEST(test_spec) {
    const char *text = NULL;
    int rc = gb_listen_tcp(&listeners, specs[_i].spec, false, &err);

    if (specs[_i].begins == NULL) {
        ck_assert_int_eq(rc, -1);
        ck_assert_int_eq(listeners.count, 0);
        ck_assert_str_ne(err.detail, "");
        return;
    }
    /* This check needs a machine with IPv6. */
    if (rc != 0 && specs[_i].spec[0] == '[' &&
        (strcmp(err.native_name, "EAFNOSUPPORT") == 0 || strcmp(err.native_name, "EADDRNOTAVAIL") == 0))
        return;
    gb_assert_ok(rc, err);
    ck_assert_int_eq(listeners.count, 1);
    ck_assert_int_eq(strncmp(listeners.items[0].text, specs[_i].begins, strlen(specs[_i].begins)), 0);
    ck_assert_str_ne(listeners.items[0].text + strlen(specs[_i].begins), "0");
    ck_assert(gb_listen_beyond_loopback(&listeners, &text) == specs[_i].beyond);
}
END_TEST

START_TEST(test_taken_port) {
    struct gb_listeners other = {0};
    char spec[GB_LISTEN_TEXT_SIZE];

    gb_assert_ok(gb_listen_tcp(&listeners, "127.0.0.1:0", false, &err), err);
    strcpy(spec, listeners.items[0].text);
    ck_assert_int_eq(gb_listen_tcp(&other, spec, false, &err), -1);
    ck_assert_str_eq(err.native_name, "EADDRINUSE");
    ck_assert_msg(strstr(err.detail, spec) != NULL, "%s", err.detail);
    ck_assert_int_eq(other.count, 0);
}
END_TEST

START_TEST(test_unix) {
    struct stat st;

    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_int_eq(st.st_mode & 0777, 0660);
    ck_assert_int_eq(connect_unix(), 0);
    ck_assert_int_eq(strcmp(listeners.items[0].text + 5, path), 0);
    ck_assert(!listeners.items[0].beyond_loopback);
}
END_TEST

START_TEST(test_unix_rights) {
    struct gb_socket_rights rights;
    struct stat st;
    char group[24];

    snprintf(group, sizeof group, "%u", (unsigned)getegid()); /* a group that an unprivileged process may set */
    gb_assert_ok(gb_socket_rights_read("606", group, &rights, &err), err);
    gb_assert_ok(gb_listen_unix(&listeners, path, &rights, &err), err);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0606);
    ck_assert_uint_eq(st.st_gid, getegid());
}
END_TEST

static const struct {
    const char *mode;
    const char *group;
    const char *word; /* of the refusal's text; NULL: permitted */
    mode_t want;
    gid_t gid;
} rights_cases[] = {
    {"0660", "", NULL, 0660, (gid_t)-1},
    {"777", "4294967294", NULL, 0777, 4294967294u},
    {"0", "root", NULL, 0, 0},
    {"", "", "--socket-mode", 0, 0},
    {"0800", "", "--socket-mode", 0, 0},
    {"1777", "", "0777", 0, 0},
    {"-1", "", "--socket-mode", 0, 0},
    {"06600", "", "--socket-mode", 0, 0},
    {"u=rw", "", "octal", 0, 0},
    {"0660", "no group of this name", "--socket-group", 0, 0},
    {"0660", "4294967295", "--socket-group", 0, 0},
};

START_TEST(test_rights) {
    struct gb_socket_rights rights = {.gid = 7};
    int rc = gb_socket_rights_read(rights_cases[_i].mode, rights_cases[_i].group, &rights, &err);

    if (rights_cases[_i].word == NULL) {
        gb_assert_ok(rc, err);
        ck_assert_int_eq(rights.mode, rights_cases[_i].want);
        ck_assert_uint_eq(rights.gid, rights_cases[_i].gid);
    } else {
        ck_assert_msg(strstr(err.detail, rights_cases[_i].word) != NULL, "%s", err.detail);
        gb_assert_fails(rc, err, GB_ERR_INVALID_ARGUMENT);
        ck_assert_uint_eq(rights.gid, 7);
    }
}
END_TEST

START_TEST(test_unix_stale) {
    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    close(listeners.items[0].fd); /* as if the process was killed: the file stays */
    listeners.count = 0;
    ck_assert_int_eq(connect_unix(), -1);
    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    ck_assert_int_eq(connect_unix(), 0);
}
END_TEST

START_TEST(test_unix_again) {
    mode_t mask = umask(077);
    struct stat st;
    int fd;

    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    gb_assert_ok(gb_listen_again(&listeners.items[0], &fd, &err), err);
    ck_assert_int_eq(fd, -1); /* it is there */
    unlink(path);
    gb_assert_ok(gb_listen_again(&listeners.items[0], &fd, &err), err);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect_unix(), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0660);
    ck_assert_int_eq(umask(mask), 077);
    ck_assert_int_eq(dup3(fd, listeners.items[0].fd, O_CLOEXEC), listeners.items[0].fd);
    close(fd);
}
END_TEST

/* In another folder nothing may be renamed: not even a name beside it is used. */
START_TEST(test_unix_another_folder) {
    char beside[sizeof path + 1];
    char away[sizeof folder + 5];
    struct stat st;
    int fd;

    snprintf(away, sizeof away, "%s.away", folder);
    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    ck_assert_int_eq(rename(folder, away), 0);
    ck_assert_int_eq(gb_listen_again(&listeners.items[0], &fd, &err), -1);
    err.code = GB_OK;
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    snprintf(beside, sizeof beside, "%s~", path);
    ck_assert_int_eq(mkdir(beside, 0700), 0);
    gb_assert_ok(gb_listen_again(&listeners.items[0], &fd, &err), err);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect_unix(), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0660);
    close(fd);
    ck_assert_int_eq(rmdir(beside), 0);
    snprintf(beside, sizeof beside, "%s%s", away, strrchr(path, '/'));
    ck_assert_int_eq(unlink(beside), 0);
    ck_assert_int_eq(rmdir(away), 0);
}
END_TEST

/* The file of another process is neither replaced nor removed at the end. */
START_TEST(test_unix_lost) {
    struct gb_listeners other = {0};
    int fd;

    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    unlink(path);
    gb_assert_ok(gb_listen_unix(&other, path, &usual, &err), err);
    ck_assert_int_eq(gb_listen_again(&listeners.items[0], &fd, &err), -1);
    ck_assert_int_eq(fd, -1);
    ck_assert_msg(strstr(err.detail, "another process answers") != NULL, "%s", err.detail);
    gb_listen_done(&listeners, true);
    ck_assert_int_eq(connect_unix(), 0);
    gb_listen_done(&other, true);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

START_TEST(test_unix_in_use) {
    struct gb_listeners other = {0};

    gb_assert_ok(gb_listen_unix(&listeners, path, &usual, &err), err);
    ck_assert_int_eq(gb_listen_unix(&other, path, &usual, &err), -1);
    ck_assert_msg(strstr(err.detail, "another process answers") != NULL, "%s", err.detail);
    ck_assert_int_eq(connect_unix(), 0);
}
END_TEST

START_TEST(test_unix_not_a_socket) {
    int fd = open(path, O_CREAT | O_WRONLY, 0600);

    ck_assert_int_eq(write(fd, "x", 1), 1);
    close(fd);
    ck_assert_int_eq(gb_listen_unix(&listeners, path, &usual, &err), -1);
    ck_assert_msg(strstr(err.detail, "no socket") != NULL, "%s", err.detail);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(test_unix_too_long) {
    char longer[200];

    memset(longer, 'a', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    gb_assert_fails(gb_listen_unix(&listeners, longer, &usual, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(test_adopt) {
    struct gb_listeners other = {0};
    int fd;

    gb_assert_ok(gb_listen_tcp(&other, "127.0.0.1:0", false, &err), err);
    fd = other.items[0].fd;
    ck_assert_int_eq(fcntl(fd, F_SETFL, 0), 0); /* systemd passes a blocking socket */
    gb_assert_ok(gb_listen_adopt(&listeners, fd, &err), err);
    ck_assert_str_eq(listeners.items[0].text, other.items[0].text);
    ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}
END_TEST

START_TEST(test_file) {
    char text[256] = "";
    char want[2 * GB_LISTEN_TEXT_SIZE + 3];
    struct gb_own_file own = {0};
    FILE *file;

    gb_assert_ok(gb_listen_tcp(&listeners, "127.0.0.1:0", false, &err), err);
    gb_assert_ok(gb_listen_tcp(&listeners, "127.0.0.2:0", false, &err), err);
    gb_assert_ok(gb_listen_write(&listeners, path, &own, &err), err);
    ck_assert(gb_own_file_is(&own, path));
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
    fclose(file);
    snprintf(want, sizeof want, "%s\n%s\n", listeners.items[0].text, listeners.items[1].text);
    ck_assert_str_eq(text, want);
    gb_own_file_remove(&own, path);
    ck_assert(!gb_own_file_is(&own, path));
}
END_TEST

static void assert_state_dir(const char *given, const char *want) {
    char *dir = gb_state_dir(given, &err);

    ck_assert_msg(dir != NULL, "%s", err.detail);
    ck_assert_str_eq(dir, want);
    free(dir);
}

START_TEST(test_state_dir) {
    char nested[80];
    char two[170];
    struct stat st;

    snprintf(nested, sizeof nested, "%s/a/b", folder);
    assert_state_dir(nested, nested);
    ck_assert_int_eq(stat(nested, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    snprintf(two, sizeof two, "%s:/nonexistent", nested);
    setenv("STATE_DIRECTORY", two, 1);
    assert_state_dir("", nested);
    rmdir(nested);
    snprintf(nested, sizeof nested, "%s/a", folder);
    rmdir(nested);
}
END_TEST

START_TEST(test_state_dir_found) {
    char absent[80];
    struct stat st;
    char *dir = gb_state_dir_find(folder, &err);

    ck_assert_str_eq(dir, folder);
    free(dir);
    snprintf(absent, sizeof absent, "%s/absent", folder);
    ck_assert_ptr_null(gb_state_dir_find(absent, &err));
    ck_assert_msg(strstr(err.detail, absent) != NULL && strstr(err.detail, "--state-dir") != NULL, "%s", err.detail);
    ck_assert_int_eq(stat(absent, &st), -1);
}
END_TEST

START_TEST(test_state_dir_refused) {
    ck_assert_ptr_null(gb_state_dir("/dev/null/x", &err));
    ck_assert_msg(strstr(err.detail, "/dev/null/x") != NULL && strstr(err.detail, "--state-dir") != NULL, "%s",
                  err.detail);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("listen");
    TCase *tcase = tcase_create("listen");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_spec, 0, (int)(sizeof specs / sizeof specs[0]));
    tcase_add_test(tcase, test_taken_port);
    tcase_add_test(tcase, test_unix);
    tcase_add_test(tcase, test_unix_rights);
    tcase_add_loop_test(tcase, test_rights, 0, (int)(sizeof rights_cases / sizeof rights_cases[0]));
    tcase_add_test(tcase, test_unix_stale);
    tcase_add_test(tcase, test_unix_again);
    tcase_add_test(tcase, test_unix_another_folder);
    tcase_add_test(tcase, test_unix_lost);
    tcase_add_test(tcase, test_unix_in_use);
    tcase_add_test(tcase, test_unix_not_a_socket);
    tcase_add_test(tcase, test_unix_too_long);
    tcase_add_test(tcase, test_adopt);
    tcase_add_test(tcase, test_file);
    tcase_add_test(tcase, test_state_dir);
    tcase_add_test(tcase, test_state_dir_found);
    tcase_add_test(tcase, test_state_dir_refused);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
