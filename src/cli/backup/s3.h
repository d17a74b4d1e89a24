/* Uploads to S3 in parts. */
#ifndef GB_CLI_BACKUP_S3_H
#define GB_CLI_BACKUP_S3_H

#include "cli/backup/manifest.h"
#include "cli/backup/web.h"

#define GB_S3_PARTS_MAX 10000

struct gb_s3_part {
    bool there;
    uint32_t crc;
    char etag[128];
};

struct gb_s3_upload {
    char *id;      /* escaped; NULL: there is none */
    bool in_parts; /* the store has checksums of parts alone, none of the whole object */
};

/* Begins the upload of the file's object in count parts of part_bytes, or goes on with one that a broken run left: then
 * those parts that are there are marked. */
int gb_s3_begin(struct gb_web *web, const struct gb_backup_file *file, uint64_t part_bytes, struct gb_s3_part *parts,
                size_t count, struct gb_s3_upload *ret, struct gpubuf_error *err);

/* Sends one part; its number begins with 0. Fills *part. */
int gb_s3_put_part(struct gb_web *web, const struct gb_backup_file *file, const struct gb_s3_upload *upload,
                   size_t number, const void *data, uint64_t bytes, struct gb_s3_part *part, struct gpubuf_error *err);

/* The object appears, if the store finds the file's CRC32C in it. */
int gb_s3_complete(struct gb_web *web, const struct gb_backup_file *file, const struct gb_s3_upload *upload,
                   const struct gb_s3_part *parts, size_t count, struct gpubuf_error *err);

/* Has the store forget the parts; of an upload that was given up. */
void gb_s3_abort(struct gb_web *web, const struct gb_backup_file *file, const struct gb_s3_upload *upload);

/* Sends an object in one request. */
int gb_s3_put(struct gb_web *web, const struct gb_backup_file *file, const void *data, struct gpubuf_error *err);

void gb_s3_upload_done(struct gb_s3_upload *upload);

#endif
