/* What cmocka needs before its header, in the one place that knows. */
#ifndef ND_TESTS_SUPPORT_ND_TEST_H
#define ND_TESTS_SUPPORT_ND_TEST_H

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#endif
