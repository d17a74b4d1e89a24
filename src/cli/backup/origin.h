/* Where the files of a checkpoint are read: in the daemon's own folder, if this process may read that, else from the
 * daemon. */
#ifndef GB_CLI_BACKUP_ORIGIN_H
#define GB_CLI_BACKUP_ORIGIN_H

#include "cli/backup/manifest.h"

/* Read only, by all threads. */
struct gb_origin {
    const char *checkpoint;
    int folder; /* -1: the daemon is asked */
};

/* Memory for bytes that are read, and a connection that brings them. Of one thread at a time. */
struct gb_piece {
    gpubuf_client *client; /* the owner's */
    char *room;            /* aligned for reads past the kernel's cache */
    size_t size;
};

/* The folder is taken if its manifest is the one that the daemon gave: another machine, container or checkpoint has
 * another. Never fails: the daemon has all files. checkpoint is borrowed; ret needs gb_origin_close(). */
void gb_origin_open(struct gb_cli *cli, const char *checkpoint, const json_t *manifest, struct gb_origin *ret);
/* The same of a known data folder. */
void gb_origin_open_at(const char *data_dir, const char *checkpoint, const json_t *manifest, struct gb_origin *ret);
void gb_origin_close(struct gb_origin *origin);

/* Reads part of a file. *ret is the piece's until its next use. 0, or -1 with the daemon's error. The caller compares
 * checksums. */
int gb_origin_read(const struct gb_origin *origin, struct gb_piece *piece, const struct gb_backup_file *file,
                   uint64_t offset, uint64_t bytes, const char **ret, struct gpubuf_error *err);
void gb_piece_done(struct gb_piece *piece);

#endif
