/* What the daemon says of TLS in the kernel, from a fake file of the kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/certificates.h"
#include "gb_test.h"

static bool found_in(const char *text) {
    static const char *const folders[] = {"proc", "proc/sys", "proc/sys/net", "proc/sys/net/ipv4"};
    char root[] = "/tmp/gb-ktls-XXXXXX";
    char path[128];
    FILE *file;
    bool found;
    size_t i;

    ck_assert_ptr_nonnull(mkdtemp(root));
    for (i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof(path), "%s/proc/sys/net/ipv4/tcp_available_ulp", root);
    ck_assert_ptr_nonnull(file = fopen(path, "w"));
    fputs(text, file);
    fclose(file);
    found = gb_daemon_kernel_tls(root);
    unlink(path);
    for (i = 4; i-- > 0;) {
        snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
    return found;
}

START_TEST(a_whole_word_counts) {
    ck_assert(found_in("tls\n"));
    ck_assert(found_in("espintcp mptcp tls\n"));
    ck_assert(!found_in("mptcp\n"));
    ck_assert(!found_in("tlsx mptcp-tls\n"));
    ck_assert(!found_in(""));
}
END_TEST

START_TEST(a_kernel_without_the_file_has_none) {
    ck_assert(!gb_daemon_kernel_tls("/nowhere"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("TLS in the kernel");

    gb_test_add(suite, "a whole word", a_whole_word_counts, 10);
    gb_test_add(suite, "no file", a_kernel_without_the_file_has_none, 10);
    return gb_test_run(suite);
}
