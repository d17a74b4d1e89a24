/* Adoption of other processes' memory: accepted and refused descriptors, and that both sides see the same bytes. The
 * owner of host memory is this process, by another mapping. Adoption of GPU memory is tested in import.c, whose
 * importer adopts. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conf.h"

#define BYTES (3 * MIB + 5)
#define OFFSET 4104

struct owned {
    int fd;
    unsigned char *at;
    uint64_t size;
};

static struct owned owned_new(uint64_t size) {
    struct owned m = {.fd = memfd_create("owned", MFD_CLOEXEC | MFD_ALLOW_SEALING), .size = size};

    ck_assert_int_eq(ftruncate(m.fd, (off_t)size), 0);
    ck_assert_int_eq(fcntl(m.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    m.at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
    ck_assert(m.at != MAP_FAILED);
    return m;
}

static void owned_done(struct owned *m) {
    munmap(m->at, m->size);
    close(m->fd);
}

static struct gb_import offer(const struct owned *m, uint64_t offset, uint64_t bytes) {
    return (struct gb_import){.way = GB_EXPORT_MEMFD, .fd = m->fd, .offset = offset, .bytes = bytes};
}

static int open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static struct gb_location imported(const struct gb_import *what) {
    struct gb_location place = {.ptr = NULL};

    gb_assert_ok(gb_mem_import(conf.be, what, &place, &conf.err), conf.err);
    ck_assert_ptr_nonnull(place.ptr);
    return place;
}

START_TEST(both_or_neither_is_there) {
    ck_assert_int_eq(conf.be->ops->import != NULL, conf.be->ops->import_end != NULL);
}
END_TEST

START_TEST(it_is_the_owners_memory) {
    struct owned m = owned_new(OFFSET + BYTES + 100);
    struct gb_import what = offer(&m, OFFSET, BYTES);
    struct gb_location place = imported(&what);
    struct gb_location other = conf_place(GB_KIND_DEVICE, BYTES);
    struct gb_mem_attr attr;
    uint64_t i;

    ck_assert(place.kind == GB_KIND_PINNED || place.kind == GB_KIND_PAGEABLE);
    memset(m.at, 0xee, m.size);
    conf_place_expect_byte(&place, 0xee, BYTES, conf.s1);
    conf_place_write(&place, 3, BYTES, conf.s1); /* by copies, from pinned memory */
    i = 0;                                       /* an assertion for each byte would take seconds */
    while (i < m.size && m.at[i] == (i - OFFSET < BYTES ? conf_byte(3, i - OFFSET) : 0xee))
        i++;
    ck_assert_uint_eq(i, m.size);
    conf_place_write(&other, 4, BYTES, conf.s1); /* from device memory, and into it */
    conf_move(&place, &other, BYTES, conf.s1);
    conf_sync(conf.s1);
    i = 0;
    while (i < BYTES && m.at[OFFSET + i] == conf_byte(4, i))
        i++;
    ck_assert_uint_eq(i, BYTES);
    memset(m.at + OFFSET, 0x11, BYTES);
    conf_move(&other, &place, BYTES, conf.s1);
    conf_place_expect_byte(&other, 0x11, BYTES, conf.s1);
    conf_place_fill(&place, 0x0102030405060708, 8, 16, conf.s1);
    conf_sync(conf.s1);
    ck_assert_int_eq(memcmp(m.at + OFFSET + 120, "\x08\x07\x06\x05\x04\x03\x02\x01\x11", 9), 0);
    gb_assert_ok(gb_mem_attributes(conf.be, &place, NULL, &attr, &conf.err), conf.err);
    ck_assert(!attr.from_pool);
    gb_assert_ok(gb_mem_import_end(conf.be, &place, &conf.err), conf.err);
    ck_assert_uint_eq(m.at[OFFSET + 128], 0x11); /* as it was */
    conf_place_free(&other, BYTES);
    owned_done(&m);
}
END_TEST

/* The owner first closes its mapping and its descriptor. */
START_TEST(it_stays_good_without_its_owner) {
    struct owned m = owned_new(BYTES);
    struct gb_import what = offer(&m, 0, BYTES);
    struct gb_location place = imported(&what);
    struct gb_location again = imported(&what); /* the same twice */

    ck_assert_ptr_ne(place.ptr, again.ptr);
    conf_place_write(&place, 5, BYTES, conf.s1);
    owned_done(&m);
    conf_place_expect(&again, 5, BYTES, conf.s1);
    gb_assert_ok(gb_mem_import_end(conf.be, &again, &conf.err), conf.err);
    conf_place_expect(&place, 5, BYTES, conf.s1);
    gb_assert_ok(gb_mem_import_end(conf.be, &place, &conf.err), conf.err);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refused(const struct gb_import *what, enum gb_code code) {
    struct gb_location place = {.ptr = NULL};

    ck_assert_int_eq(gb_mem_import(conf.be, what, &place, &conf.err), -1);
    ck_assert_str_eq(gb_code_slug(conf.err.code), gb_code_slug(code));
    ck_assert_str_ne(conf.err.detail, "");
    ck_assert_ptr_null(place.ptr);
    ck_assert(!gb_backend_dead(conf.be, NULL));
    conf.err = GB_ERROR_INIT;
}

/* Each way is given every handle that belongs to another way. The device keeps working. */
START_TEST(what_is_no_such_memory) {
    static const enum gb_export_way ways[] = {GB_EXPORT_VMM, GB_EXPORT_MEMFD};
    struct owned m = owned_new(BYTES);
    struct gb_import what = offer(&m, 0, BYTES);
    struct gb_location place;
    int before = open_files();
    int pair[2];
    int fds[4];
    size_t i;
    size_t k;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fds[0] = pair[0];
    fds[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
    fds[2] = open("/", O_RDONLY | O_CLOEXEC);
    fds[3] = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fds[3], BYTES), 0);
    for (i = 0; i < 2; i++) {
        bool none = ways[i] == GB_EXPORT_VMM && conf.device.compute_major == 0;

        for (k = 0; k < 4; k++) {
            what.way = ways[i];
            what.fd = fds[k];
            refused(&what, none ? GB_ERR_UNSUPPORTED : GB_ERR_CANNOT_ADOPT);
        }
    }
    what = offer(&m, 0, BYTES);
    what.way = GB_EXPORT_LEGACY;
    refused(&what, conf.device.compute_major == 0 ? GB_ERR_UNSUPPORTED : GB_ERR_CANNOT_ADOPT);
    what = offer(&m, 8, BYTES); /* beyond its end */
    refused(&what, GB_ERR_CANNOT_ADOPT);
    what = offer(&m, 0, 0);
    refused(&what, GB_ERR_INVALID_ARGUMENT);
    what = offer(&m, UINT64_MAX - 7, 16);
    refused(&what, GB_ERR_INVALID_ARGUMENT);
    what = offer(&m, 0, BYTES);
    what.device = 99;
    refused(&what, GB_ERR_INVALID_ARGUMENT);
    for (k = 0; k < 4; k++)
        close(fds[k]);
    close(pair[1]);
    what = offer(&m, 0, BYTES);
    place = imported(&what); /* the next one is accepted */
    ck_assert_int_le(open_files(), before + 1);
    gb_assert_ok(gb_mem_import_end(conf.be, &place, &conf.err), conf.err);
    ck_assert_int_eq(gb_mem_import_end(conf.be, &place, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    owned_done(&m);
}
END_TEST

/* Imported memory cannot be freed, and allocated memory cannot be released as imported. */
START_TEST(each_ends_as_it_began) {
    struct owned m = owned_new(BYTES);
    struct gb_import what = offer(&m, 0, BYTES);
    struct gb_location theirs = imported(&what);
    struct gb_location ours = conf_place(GB_KIND_PAGEABLE, BYTES);

    ck_assert_int_eq(gb_mem_import_end(conf.be, &ours, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    if (theirs.kind == GB_KIND_PAGEABLE)
        ck_assert_int_eq(gb_mem_kind_free(conf.be, &theirs, BYTES, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    conf_place_write(&theirs, 6, BYTES, conf.s1);
    conf_place_write(&ours, 7, BYTES, conf.s1);
    conf_place_expect(&theirs, 6, BYTES, conf.s1);
    conf_place_free(&ours, BYTES);
    gb_assert_ok(gb_mem_import_end(conf.be, &theirs, &conf.err), conf.err);
    owned_done(&m);
}
END_TEST

void conf_add_adopt(Suite *suite) {
    conf_add(suite, "group import", both_or_neither_is_there);
    conf_add(suite, "imports", it_is_the_owners_memory);
    conf_add(suite, "imports that stay", it_stays_good_without_its_owner);
    conf_add(suite, "wrong imports", what_is_no_such_memory);
    conf_add(suite, "ends of imports", each_ends_as_it_began);
}
