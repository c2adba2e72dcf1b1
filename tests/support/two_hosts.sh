# Two hosts, hosta and hostb, made of namespaces on this machine and joined by a cable. To be
# sourced, in a folder for files, by a script that in_namespaces.sh runs: its shell is on hosta.
# Sets on_hostb, which runs a command on the other, and what mpirun needs to start ranks there.

# Names are looked up in a file that only the namespace of mounts sees.
hostname hosta
printf '127.0.0.1 localhost\n10.77.0.1 hosta\n10.77.0.2 hostb\n' >names
mount --bind names /etc/hosts
unshare --net --uts --mount sleep infinity &
hostb=$!
on_hostb() { nsenter --target "$hostb" --net --uts --mount "$@"; }
until [ "$(readlink "/proc/$hostb/ns/net")" != "$(readlink /proc/$$/ns/net)" ]; do
  kill -0 "$hostb" || { echo "no second host" >&2; exit 1; }
  sleep 0.02
done
on_hostb hostname hostb
ip link add name cable type veth peer name cable netns "$hostb"
ip address add 10.77.0.1/24 dev cable
on_hostb ip address add 10.77.0.2/24 dev cable
for interface in lo cable; do
  ip link set "$interface" up
  on_hostb ip link set "$interface" up
done
# Stands in for ssh: Open MPI 4 and 5 each have a name for it.
cat >agent <<END_OF_AGENT
#!/bin/sh
[ "\$1" = hostb ] || exit 255
shift
exec nsenter --target $hostb --net --uts --mount sh -c "\$*"
END_OF_AGENT
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$PWD/agent PRTE_MCA_plm_ssh_agent=$PWD/agent
