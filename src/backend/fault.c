#include "backend/backend.h"
int gb_fault_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);
int gb_fault_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    (void)args; (void)ret; (void)ret_note;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "later");
}
