/* From a member to the structure that it is embedded in. */
#ifndef GB_BASE_CONTAINER_H
#define GB_BASE_CONTAINER_H

#include <stddef.h>

/* The `type` whose `member` ptr points to. ptr must not be NULL, and must have the member's type. */
#define gb_container_of(ptr, type, member)                                                                             \
    ((type *)((char *)(1 ? (ptr) : &((type *)NULL)->member) - offsetof(type, member)))

#endif
