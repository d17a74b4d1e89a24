/* Files that hold arrays in a form of their own, which is not read here. Pure. */
#ifndef GB_FORMAT_ARCHIVE_H
#define GB_FORMAT_ARCHIVE_H

#include <stddef.h>

/* A sentence about data[0..n), the first bytes of what is stored as bytes: that it resembles an archive, a compressed
 * file or a pickle. Static text; NULL: neither. */
const char *gb_archive_warning(const void *data, size_t n);

#endif
