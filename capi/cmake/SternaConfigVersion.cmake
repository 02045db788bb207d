# Which requests of find_package(Sterna VERSION) this installation answers: those of the same interface, which before
# 1.0 is the same minor version, from that version up.
set(PACKAGE_VERSION 0.1.0)

set(PACKAGE_VERSION_COMPATIBLE FALSE)
set(PACKAGE_VERSION_EXACT FALSE)
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
endif()

string(REGEX MATCH "^(0\\.)?[0-9]+" _sterna_interface "${PACKAGE_VERSION}")
string(REGEX MATCH "^(0\\.)?[0-9]+" _sterna_wanted "${PACKAGE_FIND_VERSION}")
if(_sterna_wanted STREQUAL _sterna_interface AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
unset(_sterna_interface)
unset(_sterna_wanted)

# A library of the other word size is none that can be linked.
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
    set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
