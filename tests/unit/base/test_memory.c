/* The daemon's reading of the machine's memory, from fake files of the kernel. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "gb_test.h"

#define GIB (1ull << 30)

static char root[] = "/tmp/gb-memory-XXXXXX";

static void begin(void) {
    strcpy(root, "/tmp/gb-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void end(void) {
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* Makes its parent folders, too. */
static void file(const char *path, const char *text) {
    char name[256];
    char *at;
    FILE *f;

    snprintf(name, sizeof(name), "%s/%s", root, path);
    for (at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(name, 0700);
        *at = '/';
    }
    f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

START_TEST(the_machine_s) {
    begin();
    ck_assert_uint_eq(gb_memory_there(root), 0);
    file("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          100 kB\n");
    ck_assert_uint_eq(gb_memory_there(root), 8 * GIB);
    file("proc/self/cgroup", "0::/system.slice/gpubufd.service\n");
    ck_assert_uint_eq(gb_memory_there(root), 8 * GIB);
    file("sys/fs/cgroup/system.slice/gpubufd.service/memory.max", "max\n");
    ck_assert_uint_eq(gb_memory_there(root), 8 * GIB);
    file("sys/fs/cgroup/system.slice/gpubufd.service/memory.max", "99999999999999\n");
    ck_assert_uint_eq(gb_memory_there(root), 8 * GIB);
    end();
}
END_TEST

START_TEST(the_least_of_its_groups) {
    begin();
    file("proc/meminfo", "MemTotal:        8388608 kB\n");
    file("proc/self/cgroup", "1:name=systemd:/a/b\n0::/a/b\n");
    file("sys/fs/cgroup/a/b/memory.max", "3221225472\n");
    ck_assert_uint_eq(gb_memory_there(root), 3 * GIB);
    file("sys/fs/cgroup/a/memory.max", "2147483648\n");
    ck_assert_uint_eq(gb_memory_there(root), 2 * GIB);
    file("sys/fs/cgroup/memory.max", "1073741824\n"); /* as in a container */
    ck_assert_uint_eq(gb_memory_there(root), GIB);
    end();
}
END_TEST

START_TEST(groups_of_version_1) {
    begin();
    file("proc/meminfo", "MemTotal:        8388608 kB\n");
    file("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/x/y\n0::/\n");
    file("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n");
    file("sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
    ck_assert_uint_eq(gb_memory_there(root), GIB);
    end();
}
END_TEST

/* What is left: the machine's MemAvailable, or a group's limit less what it uses and the kernel cannot take back. */
START_TEST(what_is_left) {
    begin();
    ck_assert_uint_eq(gb_memory_left(root), UINT64_MAX);
    file("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1024 kB\nMemAvailable: 4194304 kB\n");
    ck_assert_uint_eq(gb_memory_left(root), 4 * GIB);
    file("proc/self/cgroup", "0::/a/b\n");
    file("sys/fs/cgroup/a/b/memory.max", "3221225472\n");
    file("sys/fs/cgroup/a/b/memory.current", "2147483648\n");
    ck_assert_uint_eq(gb_memory_left(root), GIB);
    file("sys/fs/cgroup/a/b/memory.stat", "anon 1\nfile 9\ninactive_file 1048576\nslab_reclaimable 4096\nslab 7\n");
    ck_assert_uint_eq(gb_memory_left(root), GIB + 1048576 + 4096);
    file("sys/fs/cgroup/a/memory.max", "2147483648\n");
    file("sys/fs/cgroup/a/memory.current", "2147487744\n"); /* the kernel is about to take some back */
    ck_assert_uint_eq(gb_memory_left(root), 0);
    file("sys/fs/cgroup/a/memory.stat", "inactive_file 8192\n");
    ck_assert_uint_eq(gb_memory_left(root), 4096);
    ck_assert_uint_eq(gb_memory_there(root), 2 * GIB);
    end();
}
END_TEST

START_TEST(what_is_left_by_version_1) {
    begin();
    file("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
    file("proc/self/cgroup", "4:memory:/docker/x\n0::/\n"); /* in a container its own group is the root */
    file("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    file("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    file("sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 536870912\n");
    ck_assert_uint_eq(gb_memory_left(root), GIB / 2);
    end();
}
END_TEST

START_TEST(a_budget) {
    struct gb_memory_budget budget;
    uint64_t all;

    begin();
    gb_memory_budget_init(&budget, root); /* nothing is known */
    ck_assert_uint_eq(gb_memory_budget_left(&budget, GIB), UINT64_MAX);
    file("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
    gb_memory_budget_init(&budget, root);
    all = GIB / 2 - GIB / 16; /* a sixteenth is for the rest of the process */
    ck_assert_uint_eq(gb_memory_budget_left(&budget, 0), all);
    ck_assert_uint_eq(gb_memory_budget_left(&budget, 4096), all - 4096);
    ck_assert_uint_eq(gb_memory_budget_left(&budget, GIB), 0);
    file("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 1048576 kB\n");
    gb_memory_budget_read(&budget, 0, 0); /* too soon */
    ck_assert_uint_eq(gb_memory_budget_left(&budget, 0), all);
    budget.read_ns = 0;
    gb_memory_budget_read(&budget, 0, 0);
    ck_assert_uint_eq(gb_memory_budget_left(&budget, 0), all + GIB / 2);
    /* What was given and is resident is not left, and has been given: it counts once. */
    budget.before_bytes = 0;
    budget.read_ns = 0;
    gb_memory_budget_read(&budget, 4096, 0);
    ck_assert_uint_eq(gb_memory_budget_left(&budget, 4096), all + GIB / 2);
    budget.read_ns = 0;
    gb_memory_budget_read(&budget, 4096, GIB); /* what is resident is another process's */
    ck_assert_uint_eq(gb_memory_budget_left(&budget, 4096), all + GIB / 2 - 4096);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("memory of the machine");

    gb_test_add(suite, "machine", the_machine_s, 10);
    gb_test_add(suite, "groups", the_least_of_its_groups, 10);
    gb_test_add(suite, "version 1", groups_of_version_1, 10);
    gb_test_add(suite, "left", what_is_left, 10);
    gb_test_add(suite, "left, version 1", what_is_left_by_version_1, 10);
    gb_test_add(suite, "budget", a_budget, 10);
    return gb_test_run(suite);
}
