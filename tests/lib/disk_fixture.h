/* The fixture of the disk's tests: a folder of files in a temporary one, and files in it. */
#ifndef DISK_FIXTURE_H
#define DISK_FIXTURE_H

#include "disk/header.h"
#include "disk/internal.h"

#define DISK_PATH_SIZE 192
#define DISK_UUID "0b1e5a3c-0000-4000-8000-000000000001"

struct disk_fixture {
    char top[64]; /* temporary; all is in it */
    char dir[96]; /* of the files, in top */
    struct gb_disk_config config;
    struct gb_disk *disk;
};

/* Makes top in that folder ("/tmp") and opens a disk with these rules, which may be NULL. A failure ends the test. */
void disk_fixture_init(struct disk_fixture *f, const char *in, const char *rules);
void disk_fixture_open(struct disk_fixture *f, const char *rules);
void disk_fixture_close(struct disk_fixture *f);
void disk_fixture_done(struct disk_fixture *f);

/* Files and folders in top, but for top, the disk's folder and the marker. */
unsigned disk_entries(const struct disk_fixture *f);
/* The path of a file. */
const char *disk_path(const struct disk_fixture *f, const struct gb_disk_name *name, char ret[DISK_PATH_SIZE]);
/* As gb_disk_stat. */
struct gb_disk_stat disk_stat(const struct disk_fixture *f);
/* How often the rules were asked for the operation. The disk has rules. */
uint64_t disk_calls(const struct disk_fixture *f, enum gb_disk_op op);

struct gb_disk_name disk_name(int64_t id);
/* A record of that many bytes of type uint8, named "b". */
struct gb_buffer_rec disk_buffer(uint64_t bytes);
/* Bytes that differ from block to block and from page to page. The caller frees them; they are aligned. */
unsigned char *disk_bytes(uint64_t n);

/* Writes a file of disk_bytes in one piece. Returns 0, or -1 with the error of the call that failed; the writer is
 * discarded then. */
int disk_write(struct disk_fixture *f, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err);
/* Asserts that the file has the bytes of disk_bytes. */
void disk_assert_bytes(struct disk_fixture *f, const struct gb_disk_name *name, uint64_t bytes);
/* Asserts that it cannot be opened, with this code. */
void disk_assert_unreadable(struct disk_fixture *f, const struct gb_disk_name *name, uint64_t bytes, enum gb_code code);

#endif
