# A machine of its own out of this one's files, with systemd as its first process: `sh machine.sh ROOT GROUP PROGRAM`.
#
# It has its own processes, mounts, control groups, host name and /etc; only /usr, the devices that everybody has and
# the network are this machine's. Nothing that is written in it reaches this machine. Ends with 3 where that cannot be.
# Once its root is its own, the file /made-for-a-test is in it and names its control group.
set -e
trap 'code=$?; [ "$code" = 0 ] || exit 3' EXIT
root=$1 group=$2 program=$3

for hierarchy in /sys/fs/cgroup/unified /sys/fs/cgroup; do
  if [ -e "$hierarchy/cgroup.controllers" ]; then
    mkdir "$hierarchy/$group"
    echo $$ >"$hierarchy/$group/cgroup.procs"
    grouped=yes
    break
  fi
done
[ "${grouped:-}" = yes ] || { echo 'no control groups of version 2' >&2; exit 3; }

# What follows runs as process 1 of the new machine.
first='
root=$1 program=$2 group=$3
cd /
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
echo "$group" >made-for-a-test
mkdir -m 755 usr etc var var/lib var/log run home srv opt proc sys dev old
mkdir -m 700 root
mkdir -m 1777 tmp var/tmp
for folder in bin sbin lib lib64; do [ ! -e "/usr/$folder" ] || ln -s "usr/$folder" "$folder"; done

# Packages can be put in where files can be laid over others.
mkdir -p old/over/upper old/over/work
if mount -t overlay -o "lowerdir=/usr,upperdir=$root/old/over/upper,workdir=$root/old/over/work" overlay usr; then
  # Nothing of this machine is started in there: only what the targets below name.
  rm -rf usr/lib/systemd/system/*.wants usr/lib/systemd/system-generators
  path=/etc/systemd/system:/run/systemd/system:/usr/lib/systemd/system
else
  mount --bind /usr usr
  mount -o remount,bind,ro usr
  path=/etc/systemd/system:/run/systemd/system
fi
touch opt/hermes-relay
mount --bind "$program" opt/hermes-relay
mount -o remount,bind,ro opt/hermes-relay

mount -t tmpfs -o mode=755 tmpfs run
mount -t proc proc proc
# What is set in there is set for everybody.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys
mount -o remount,bind,ro sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm

for known in passwd group shadow gshadow login.defs ld.so.cache ld.so.conf ld.so.conf.d alternatives dpkg; do
  [ ! -e "/etc/$known" ] || cp -a "/etc/$known" etc/
done
echo "hosts: files dns" >etc/nsswitch.conf
echo "127.0.0.1 localhost" >etc/hosts
echo machine >etc/hostname
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
mkdir -p var/lib/dpkg/info var/lib/dpkg/updates
touch var/lib/dpkg/status

# Only what a service needs.
mkdir -p etc/systemd/system/sockets.target.wants
units=/usr/lib/systemd/system
[ -d "$units" ] || units=/lib/systemd/system
for unit in sysinit basic sockets network network-online multi-user shutdown; do
  cp "$units/$unit.target" etc/systemd/system/
done
cp "$units/systemd-journald.service" "$units/systemd-journald.socket" etc/systemd/system/
ln -s ../systemd-journald.socket etc/systemd/system/sockets.target.wants/
ln -s multi-user.target etc/systemd/system/default.target

pivot_root . old
umount -l /old
# As on a machine that was booted: what is mounted for a service is seen by the manager, too.
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_LOG_TARGET=journal \
  SYSTEMD_UNIT_PATH="$path" /lib/systemd/systemd --system --show-status=no
'
trap - EXIT
exec unshare --pid --mount --cgroup --uts --ipc --fork --kill-child --propagation private \
  sh -e -c "$first" first "$root" "$program" "$group"
