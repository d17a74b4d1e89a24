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

int main(void) {
    Suite *suite = suite_create("memory of the machine");

    gb_test_add(suite, "machine", the_machine_s, 10);
    gb_test_add(suite, "groups", the_least_of_its_groups, 10);
    gb_test_add(suite, "version 1", groups_of_version_1, 10);
    return gb_test_run(suite);
}
