/* Values in the JSON of etcd's gateway: numbers are strings, and keys and values are base64. */
#ifndef GB_TEST_ETCD_VALUES_H
#define GB_TEST_ETCD_VALUES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* A member that is a number, as a string or as it is; 0 without one. */
int64_t etcd_number(const json_t *object, const char *key);
json_t *etcd_text(int64_t n);
json_t *etcd_base64(const char *value);
/* The text of a member that is base64; bytes may be NULL. NULL without one. The caller frees. */
char *etcd_plain(const json_t *object, const char *key, size_t *bytes);

#endif
