/* The header under its older name. */
#ifndef DNNL_DEBUG_H
#define DNNL_DEBUG_H

#include "oneapi/dnnl/dnnl_debug.h"

#endif
